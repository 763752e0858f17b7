"""The comparisons of layouts fail where a layout is broken."""

import json
import shutil

import pytest
from layouts import (FP32, IN_FP32, LAYOUTS, Result, curve, first_gradients, parallel,
                     state_tensors, step_dir, violations, write_run)
from programs import later, split

ONE = (1, [])
STEPS = 4
ALL = {"losses", "norms", "gradients"}
# For each fault: the layout that it breaks, the model, and what has to be seen. Adam's update does
# not depend on the scale of a gradient, so such a fault leaves the losses.
FAULTS = {
    "no_norm_sum": (LAYOUTS["tp2_sequence"], {}, ALL),
    "no_key_sum": (LAYOUTS["tp4"], {}, ALL),
    "no_tied_sum": (LAYOUTS["pp2"], {"tie_word_embeddings": True}, ALL),
    "no_replica_sum": (LAYOUTS["shard_group_2_of_4"], {}, ALL),
    "dropped_micro_batch": (LAYOUTS["zero1"], {}, ALL),
    "local_denominator": (parallel(2, 2, zero=1), {}, {"norms", "gradients"}),
    "chunk_order": (LAYOUTS["cp2_ring"], {}, ALL),
    "halved_gradient": (LAYOUTS["tp2_pp2"], {}, {"norms", "gradients"}),
}
NOW = ["no_norm_sum", "no_tied_sum", "local_denominator", "chunk_order"]


@pytest.fixture
def broken(run, store, tmp_path):
    """The first steps of a layout with a fault, or with none."""

    def call(layout, fault, **model_changes):
        ranks, keys = layout
        sets = [*keys, *FP32, "optimizer.clip=0"]
        words = [w for s in sets for w in ("--set", s)]
        if fault:
            words += ["--fault", fault]
        path = write_run(tmp_path, store, **model_changes)
        result = run("longhaul_layout_tool", path, STEPS, *words, ranks=ranks,
                     env={"OMP_NUM_THREADS": "1"})
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
        return Result([line["loss"] for line in lines], [line["grad_norm"] for line in lines],
                      first_gradients(tmp_path / "run"))

    return call


@pytest.mark.parametrize("fault", split(FAULTS, NOW))
def test_a_fault_is_seen(broken, judged, fault):
    layout, model, kinds = FAULTS[fault]
    found = violations(broken(layout, fault, **model), judged(ONE, *FP32, **model), IN_FP32)
    assert kinds <= found.keys()
    # The difference lies well outside of the tolerance, not at its edge.
    assert min(found[kind] for kind in kinds) > 5e-5, found


@pytest.mark.parametrize("name", ["tp2_sequence", *later("shard_group_2_of_4", "pp2")])
def test_without_a_fault_the_tool_trains_as_the_program(broken, trained, name):
    ours = broken(LAYOUTS[name], None)
    theirs = trained(LAYOUTS[name], *FP32, "optimizer.clip=0", "checkpoint.every=1",
                     f"run.stop_after={STEPS}")
    assert list(zip(ours.losses, ours.norms)) == [point[:2] for point in curve(theirs)]
    for tensor, gradient in first_gradients(theirs).items():
        assert (ours.first_gradients[tensor] == gradient).all(), tensor


def test_a_tensor_that_is_not_saved_once_is_seen(trained, tmp_path):
    saved = step_dir(trained(LAYOUTS["zero1"], *FP32, "run.stop_after=3"), 3)
    twice, less = (shutil.copytree(saved, tmp_path / name) for name in ("twice", "less"))
    for path in saved.glob("a1_rank_00001.*"):
        shutil.copy(path, twice / path.name.replace("00001", "00002"))
        (less / path.name).unlink()
    state_tensors(saved, "weight")
    for wrong in (twice, less):
        with pytest.raises(AssertionError, match="not saved once"):
            state_tensors(wrong, "weight")
