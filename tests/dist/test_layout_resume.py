"""What is bitwise the same when a run is resumed in its layout, and how a run goes on in another
layout."""

import pytest
from layouts import (DECODERS, FP32, LAYOUTS, curve, go_on_with, parallel, relative, state,
                     step_dir, tensors, train, write_run)
from programs import later

ONE = (1, [])
EIGHT = ["run.steps=8"]


RESUMED = ["zero3", *later("tp2_sequence", "pp2_dp2_zero1", "cp2_ring", "pp2_interleaved")]
# Every layout of the list saves in one pair and goes on in another.
PAIRS = [("tp4", "cp2_dp2_zero3"),
         *later(("cp2_dp2_zero3", "pp2_interleaved"), ("one", "tp4"), ("pp2_interleaved", "shard_group_2_of_4"), ("shard_group_2_of_4", "tp2_pp2_dp2"),
                ("tp2_pp2_dp2", "one"))]


def assert_bitwise(ours, theirs):
    """Curves and final checkpoints of two run directories."""
    assert len(curve(theirs)) == 8 and curve(ours) == curve(theirs)
    assert tensors(step_dir(ours, 8)) == tensors(step_dir(theirs, 8))
    assert state(step_dir(ours, 8)) == state(step_dir(theirs, 8))


@pytest.mark.parametrize("name", RESUMED)
def test_a_stopped_run_goes_on_bitwise(run, store, tmp_path, trained, name):
    ranks, keys = LAYOUTS[name]
    path = write_run(tmp_path, store)
    train(run, path, *keys, *EIGHT, "run.stop_after=3", ranks=ranks)
    assert len(curve(tmp_path / "run")) == 3
    train(run, path, *keys, *EIGHT, ranks=ranks)
    assert_bitwise(tmp_path / "run", trained(LAYOUTS[name], *EIGHT))


@pytest.mark.parametrize("name", ["zero3", *later("tp2_sequence", "pp2_dp2_zero1")])
def test_the_same_run_twice_is_bitwise_the_same(trained, name):
    again = trained(LAYOUTS[name], *EIGHT, copy=1)
    assert_bitwise(again, trained(LAYOUTS[name], *EIGHT))


RECOMPUTE = {
    "selective": ['memory.recompute="selective"'],
    "full": ['memory.recompute="full"'],
    "offloaded": ['memory.recompute="full"', "memory.offload_activations=true"],
    "two_layers": ['memory.recompute="full"', "memory.recompute_layers=2"],
}


@pytest.mark.parametrize("name,kind", [
    ("one", "selective"), ("pp2_interleaved", "two_layers"),
    *later(("one", "full"), ("one", "offloaded"), ("one", "two_layers"), ("tp2_sequence", "full"),
           ("tp2_sequence", "selective"), ("zero3", "full"), ("cp2_ring", "full"))])
def test_recompute_changes_no_bit(trained, name, kind):
    layout = LAYOUTS.get(name, parallel(1))
    assert_bitwise(trained(layout, *EIGHT, *RECOMPUTE[kind]), trained(layout, *EIGHT))


def test_recompute_changes_no_bit_of_another_familys(trained):
    """GPT-2's feed-forward has no gate, so it makes one tensor of one."""
    sets = [*EIGHT, *FP32]
    assert_bitwise(trained(parallel(1), *sets, *RECOMPUTE["selective"], model_type="gpt2"),
                   trained(parallel(1), *sets, model_type="gpt2"))


def test_a_cpu_has_nowhere_to_offload_to_and_says_so(trained):
    log = (trained(parallel(1), *EIGHT, *RECOMPUTE["offloaded"]) / "log.txt").read_text()
    assert "memory.offload_activations has no effect: a CPU has no other memory" in log


@pytest.mark.parametrize("name", ["pp2_zb", *later("pp2_gpipe")])
def test_schedules_of_the_same_stages_are_bitwise_the_same(trained, name):
    assert_bitwise(trained(LAYOUTS[name], *EIGHT), trained(LAYOUTS["pp2"], *EIGHT))


@pytest.mark.parametrize("setting", [
    'parallel.pipeline="zb-h1"', *later('parallel.pipeline="gpipe"', "memory.gathered_gb=1")])
def test_when_units_are_gathered_and_reduced_changes_no_bit(trained, setting):
    layout = LAYOUTS["pp2_dp2_zero3"]
    assert_bitwise(trained(layout, *EIGHT, setting), trained(layout, *EIGHT))


@pytest.mark.parametrize("before,after", PAIRS)
def test_a_checkpoint_goes_on_in_another_layout(run, store, tmp_path, trained, before, after):
    one = curve(trained(ONE, *EIGHT, *FP32))
    ours = go_on_with(run, store, tmp_path, trained, before, after)
    assert len(ours) == 8
    for part in range(2):
        assert relative([p[part] for p in ours], [p[part] for p in one]) <= 1e-5


@pytest.mark.parametrize("family,before,after", [
    *later(("gpt_neox", "tp2_pp2", "zero3"), ("mistral", "cp2_ring", "tp4"),
           *((name, "tp2_pp2", layout) for name, (_, layout, *_) in DECODERS.items()))])
def test_another_family_goes_on_in_another_layout(run, store, tmp_path, trained, family, before,
                                                  after):
    one = curve(trained(ONE, *EIGHT, *FP32, model_type=family))
    ours = go_on_with(run, store, tmp_path, trained, before, after, model_type=family)
    assert len(ours) == 8
    for part in range(2):
        assert relative([p[part] for p in ours], [p[part] for p in one]) <= 1e-5


def test_the_second_half_is_not_that_of_a_fresh_start(run, store, tmp_path, trained):
    one = curve(trained(ONE, *EIGHT, *FP32))
    path = write_run(tmp_path, store)
    train(run, path, *EIGHT, *FP32, "run.stop_after=4")
    fresh = curve(tmp_path / "run")
    assert relative([p[0] for p in fresh], [p[0] for p in one[4:]]) > 1e-2
