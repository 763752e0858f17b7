"""The comparisons of layouts that take longer: layouts combined with each other and with
settings."""

import itertools

import pytest
from layouts import (FP32, IN_FP32, LAYOUTS, assert_bf16_is_one_rank, curve, go_on_with,
                     parallel, relative, violations)

ONE = (1, [])
STATES = ["one", "zero3", "shard_group_2_of_4", "tp2_sequence", "tp4", "cp2_ring",
          "pp2_interleaved", "tp2_pp2", "cp2_dp2_zero3"]

TIED = {"tie_word_embeddings": True}
MASKED = ["data.document_mask=true"]
Z_LOSS = ["optimizer.z_loss=0.01"]
FROZEN = ['optimizer.groups=[{match="embed",frozen=true},{match="layers.0",frozen=true},'
          '{match="layers.1",frozen=true}]']
# For each case: the layout, settings that change the mathematics, and changes of the model.
COMBINED = {
    "tp2_pp2_cp2": (parallel(8, 4, tp=2, pp=2, cp=2), [], {}),
    "pp2_cp2_gather": (parallel(4, pp=2, cp=2, context="gather"), [], {}),
    "interleaved_tp2_zero3": (
        parallel(4, tp=2, pp=2, pipeline="interleaved", virtual_stages=2, zero=3), [], {}),
    "interleaved_dp2_zero3": (
        parallel(4, 1, pp=2, pipeline="interleaved", virtual_stages=2, zero=3), [], {}),
    "zb_dp2_zero2": (parallel(4, 1, pp=2, pipeline="zb-h1", zero=2), [], {}),
    "zb_tp2": (parallel(4, tp=2, pp=2, pipeline="zb-h1"), [], {}),
    "tp4_dp2_zero2": (parallel(8, 4, tp=4, zero=2), [], {}),
    "tp2_cp2_dp2_groups_of_2": (parallel(8, 4, tp=2, cp=2, zero=3, shard_group=2), [], {}),
    "zero1_groups_of_2": (parallel(4, 1, zero=1, shard_group=2), [], {}),
    "zero2_groups_of_2": (parallel(4, 1, zero=2, shard_group=2), [], {}),
    "tp3": (parallel(3, 4, tp=3, sequence=False), [], {}),
    "tp6": (parallel(6, 4, tp=6, sequence=False), [], {}),
    "tp3_dp2_zero3": (parallel(6, 4, tp=3, sequence=False, zero=3), [], {}),
    "cp8": (parallel(8, 4, cp=8), [], {}),
    "uneven_stages": (parallel(2, pp=2, partition=[1, 3]), [], {}),
    "pp3": (parallel(3, pp=3), [], {}),
    "pp3_tied": (parallel(3, pp=3), [], TIED),
    "tp4_tied": (parallel(4, tp=4), [], TIED),
    "zero3_tied": (parallel(2, zero=3), [], TIED),
    "pp2_dp2_zero3_tied": (parallel(4, pp=2, zero=3), [], TIED),
    "interleaved_tp2_tied": (
        parallel(4, tp=2, pp=2, pipeline="interleaved", virtual_stages=2), [], TIED),
    "tp2_z_loss": (parallel(2, 4, tp=2), Z_LOSS, {}),
    "pp2_cp2_z_loss": (parallel(4, 4, pp=2, cp=2), Z_LOSS, {}),
    "tp2_cp2_documents": (parallel(4, 4, tp=2, cp=2), MASKED, {}),
    "pp2_cp2_gather_documents": (parallel(4, 4, pp=2, cp=2, context="gather"), MASKED, {}),
    "tp2_zero3_frozen": (parallel(4, tp=2, zero=3), FROZEN, {}),
    "pp2_frozen_stage": (parallel(2, pp=2), FROZEN, {}),
}


@pytest.mark.parametrize("name", COMBINED)
def test_combined_layouts_are_one_rank(judged, name):
    layout, sets, model = COMBINED[name]
    assert not violations(judged(layout, *FP32, *sets, **model),
                          judged(ONE, *FP32, *sets, **model), IN_FP32)


@pytest.mark.parametrize("name", ["tp2", "cp2_ring", "cp2_gather"])
def test_composite_forms_split_alike(judged, name):
    plain = [*FP32, "run.fused=false"]
    assert not violations(judged(LAYOUTS[name], *plain), judged(ONE, *plain), IN_FP32)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_in_bf16_is_one_rank_within_its_rounding(judged, name):
    assert_bf16_is_one_rank(judged, LAYOUTS[name])


@pytest.mark.parametrize("before,after", itertools.permutations(STATES, 2))
def test_any_checkpoint_goes_on_in_any_layout(run, store, tmp_path, trained, before, after):
    one = curve(trained(ONE, "run.steps=8", *FP32))
    ours = go_on_with(run, store, tmp_path, trained, before, after)
    assert len(ours) == 8
    for part in range(2):
        assert relative([p[part] for p in ours], [p[part] for p in one]) <= 1e-5
