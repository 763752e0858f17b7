"""What is counted of a rank's memory before a run is what the rank holds."""

import json

import pytest
from planned_memory import DEVICE, LAYOUTS, TINY, compare, planned, resident, words, write
from programs import later

QUICK = {"num_hidden_layers": 1}, ["data.seq_len=256", "batch.global_size=4"]


@pytest.mark.parametrize("name,changes", [("tp 2", QUICK), ("ep 2", QUICK),
                                          *later(*((name, ({}, [])) for name in LAYOUTS))])
def test_the_peak_of_a_devices_allocator_is_what_plan_counts(run, tmp_path, name, changes):
    for counted, asked in compare(run, tmp_path, name, *changes):
        assert asked == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize("name", later(*LAYOUTS))
def test_the_resident_set_on_a_cpu_is_what_plan_counts(run, tmp_path, name):
    counted, held = resident(run, tmp_path, name)
    assert held == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize("name", ["tp 2, pp 2, dp 2, interleaved", "ep 2, dp 4, zero 3"])
def test_config_counts_what_plan_counts_to_the_byte(run, tmp_path, name):
    ranks, sets = write(tmp_path, name, "softdev:0")
    found = planned(run, tmp_path, ranks, [*sets, *DEVICE])
    said = run("longhaul", "config", "run.toml", "--ranks", ranks, "--json", *words([*sets, *DEVICE]), cwd=tmp_path)
    assert ([rank["all_bytes"] for rank in json.loads(said.stdout)["layout"]["ranks"]]
            == [rank["all_bytes"] for rank in found["memory"]["ranks"]])


def test_the_check_before_the_first_step_warns_below_what_plan_counts(run, tmp_path):
    """When the check is made, the run holds one block of its device, of so many bytes."""
    begun = 512
    ranks, sets = write(tmp_path, "one rank", "softdev:0", TINY)
    sets = [*sets, *DEVICE]
    (rank,) = planned(run, tmp_path, ranks, sets)["memory"]["ranks"]
    counted = int(rank["all_bytes"])
    for room, fits in (counted + begun, True), (counted + begun - 1, False):
        done = run("longhaul", "train", "run.toml", *words([*sets, f"run.dir=run{room}"]), cwd=tmp_path, check=False,
                   env={"OMP_NUM_THREADS": "1", "SOFTDEV_MEMORY": str(room)})
        # Blocks of the device are larger than what is asked for, so that the run itself does not fit.
        assert "out of memory" in done.stderr
        assert ("memory may not suffice" not in done.stdout) == fits, done.stdout
