"""What `longhaul rehearse` tells of a run, against the run itself on the software accelerator."""

import json

import pytest
from layouts import parallel, train, write_run
from programs import BIN, later, split

DEVICE = ['run.device="plugin"',
          f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"']
STEPS = 2
# The first step's record has the peak before the rate of the device is measured, which takes memory.
LAYOUTS = {
    "one": parallel(1),
    "dp2": parallel(2, zero=0),
    "zero1": parallel(2, zero=1),
    "zero2": parallel(2, zero=2),
    "zero3": parallel(2, zero=3),
    "tp2_pp2": parallel(4, tp=2, pp=2),
    "tp4": parallel(4, 4, tp=4, sequence=False),
    "cp2_ring": parallel(2, cp=2, context="ring"),
    "cp2_gather": parallel(2, 4, cp=2, context="gather"),
    "pp2_interleaved": parallel(2, pp=2, pipeline="interleaved", virtual_stages=2),
    "pp2_zb": parallel(2, pp=2, pipeline="zb-h1"),
    "pp2_dp2_zero3": parallel(4, pp=2, zero=3, partition=[3, 1]),
    "cp2_dp2_zero3": parallel(4, cp=2, zero=3),
}
RECOMPUTED = ['memory.recompute="full"']
SELECTIVE = ['memory.recompute="selective"']
LAMB = ['optimizer.kind="lamb"']
FP32 = ['precision.compute="fp32"']
EXPERTS = {"one": parallel(1), "ep2": parallel(2, ep=2), "dp4_ep2": parallel(4, 1, zero=1, ep=2),
           "ep2_tp2": parallel(4, tp=2, ep=2)}


def rehearse(run, path, ranks, *sets, check=True, more=()):
    return run("longhaul", "rehearse", path, "--ranks", ranks, "--json", *more,
               *[w for s in sets for w in ("--set", s)], check=check)


def peaks(run, store, tmp_path, layout, *sets, **model_changes):
    """The peaks of the first step: the rehearsal's, and the run's."""
    ranks, keys = layout
    path = write_run(tmp_path, store, **model_changes)
    sets = [*keys, *sets, f"run.steps={STEPS}", "schedule.warmup_steps=0"]
    told = json.loads(rehearse(run, path, ranks, *sets, more=["--steps", 1]).stdout)
    train(run, path, *sets, *DEVICE, ranks=ranks)
    first = json.loads((tmp_path / "run/metrics.jsonl").open().readline())
    return told["peak_bytes"], first["memory_peak_bytes"]


CASES = [(name, []) for name in LAYOUTS] + [
    ("tp2_pp2", RECOMPUTED), ("zero3", SELECTIVE), ("zero1", LAMB), ("tp2_pp2", FP32),
    ("pp2_dp2_zero3", RECOMPUTED)]


@pytest.mark.parametrize("name,sets", split(CASES, [("tp2_pp2", []), ("zero3", SELECTIVE)]))
def test_a_rehearsed_peak_is_the_runs_to_the_byte(run, store, tmp_path, name, sets):
    told, had = peaks(run, store, tmp_path, LAYOUTS[name], *sets)
    assert told == had


@pytest.mark.parametrize("name", later(*EXPERTS))
def test_a_rehearsed_peak_of_even_experts_is_near_the_runs(run, store, tmp_path, name):
    """A real router is not even, so that rows of experts differ."""
    told, had = peaks(run, store, tmp_path, EXPERTS[name], model_type="qwen3_moe")
    assert told <= had
    assert told == pytest.approx(had, rel=0.03)


def test_experts_are_rehearsed_in_a_layout_of_their_own(run, store, tmp_path):
    told = json.loads(rehearse(run, write_run(tmp_path, store, model_type="qwen3_moe"), 8,
                               "parallel.ep=2", "parallel.tp=2", "parallel.pp=2",
                               "batch.micro_size=1").stdout)
    assert sum(p["ranks"] for p in told["played"]) == told["ranks"] == 8


def test_a_rehearsal_says_what_is_lacking(run, store, tmp_path):
    path = write_run(tmp_path, store)
    peak = json.loads(rehearse(run, path, 4, "parallel.tp=2").stdout)["peak_bytes"]
    fits = rehearse(run, path, 4, "parallel.tp=2", more=["--memory", peak])
    assert json.loads(fits.stdout)["lacking_bytes"] == 0
    # One layer more, on a device that these layers just fit.
    write_run(tmp_path, store, num_hidden_layers=5)
    full = rehearse(run, path, 4, "parallel.tp=2", more=["--memory", peak], check=False)
    assert full.returncode == 78
    assert json.loads(full.stdout)["lacking_bytes"] > 0
    assert "are lacking; use more ranks" in full.stderr


def test_a_rehearsal_names_an_operation_that_the_device_lacks(run, store, tmp_path):
    path = write_run(tmp_path, store)
    lacking = rehearse(run, path, 2, "parallel.pp=2", more=["--lacks", "aten::mm"], check=False)
    assert lacking.returncode == 78
    assert "the device lacks aten::mm" in lacking.stderr
    assert "(pp " in lacking.stderr
    # Without a kernel of its own attention the program takes the plain form.
    rehearse(run, path, 2, "parallel.pp=2", more=["--lacks", "aten::_flash_attention_forward"])
    wrong = rehearse(run, path, 2, more=["--lacks", "aten::mmm"], check=False)
    assert wrong.returncode == 78
    assert "no operation has the name aten::mmm" in wrong.stderr


def test_a_rehearsal_needs_neither_data_nor_a_directory(run, store, tmp_path):
    path = write_run(tmp_path, store)
    path.write_text(path.read_text().replace(str(store), str(tmp_path / "nowhere")))
    rehearse(run, path, 2)
    assert not (tmp_path / "run").exists()
