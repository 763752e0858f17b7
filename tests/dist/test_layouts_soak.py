"""The comparisons of layouts that take longer: everything with everything."""

import itertools

import pytest
from layouts import FP32, IN_BF16, LAYOUTS, curve, go_on_with, relative, violations

ONE = (1, [])
STATES = ["one", "zero3", "shard_group_2_of_4", "tp2_sequence", "tp4", "cp2_ring",
          "pp2_interleaved", "tp2_pp2", "cp2_dp2_zero3"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_in_bf16_is_one_rank_within_its_rounding(judged, name):
    one = judged(ONE)
    assert one.losses[0] - one.losses[-1] >= 0.5
    assert not violations(judged(LAYOUTS[name]), one, IN_BF16)


@pytest.mark.parametrize("before,after", itertools.permutations(STATES, 2))
def test_any_checkpoint_goes_on_in_any_layout(run, store, tmp_path, trained, before, after):
    one = curve(trained(ONE, "run.steps=8", *FP32))
    ours = go_on_with(run, store, tmp_path, trained, before, after)
    assert len(ours) == 8
    for part in range(2):
        assert relative([p[part] for p in ours], [p[part] for p in one]) <= 1e-5
