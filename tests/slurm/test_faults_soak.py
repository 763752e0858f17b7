"""Every fault on the cluster, several times each at moments by the seed (LONGHAUL_FAULTS)."""

import os

import pytest
from faults import FAULTS, QUIET, STEPS, Supervised, machines, reference, strike, whole_curve

TIMES = int(os.environ.get("LONGHAUL_FAULTS", "3"))


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("seed", range(TIMES))
@pytest.mark.parametrize("fault", FAULTS)
def test_fault(cluster, binary, folder, undisturbed, fault, seed):
    supervised = Supervised(cluster, binary, folder)
    seconds = strike(supervised, fault, seed)
    supervised.finish(seconds=400)
    print(f"fault {fault} seed {seed}: {seconds:.1f} s until the next step")
    assert whole_curve(supervised.dir) == undisturbed
    if fault == "signal_before_limit":
        assert cluster.job(supervised.job)["Restarts"] != "0"
    elif fault not in QUIET | {"kill_supervisor", "lose_batch_host"}:
        assert supervised.events("restart"), supervised.tail()


def test_a_full_directory_of_checkpoints_stops_nothing(cluster, binary, folder, undisturbed):
    """Saves fail while the disk is full; the run tries again until there is room."""
    small = cluster.shared / "small"
    inside = cluster.head.path_inside(small)
    (folder / "run").mkdir()
    cluster.call("ln", "-s", small, folder / "run" / "checkpoints")
    # Of 4 MB; a checkpoint has 1.3.
    supervised = Supervised(cluster, binary, folder, "checkpoint.keep=1")
    supervised.wait_for_step(8)
    cluster.call("sh", "-c", f"head -c 4M /dev/zero > '{small}/filler'", check=False)
    machines.wait_until(lambda: len(supervised.events("restart")) >= 3 or not supervised.alive(),
                        120, supervised.tail)
    (inside / "filler").unlink()
    supervised.finish()
    assert supervised.events("checkpoint_failed"), supervised.tail()
    assert not (supervised.dir / "excluded_nodes.json").exists(), supervised.tail()
    assert whole_curve(supervised.dir) == undisturbed


def test_scancel_saves_and_the_same_command_goes_on(cluster, binary, folder, undisturbed):
    supervised = Supervised(cluster, binary, folder)
    supervised.wait_for_step(12)
    cluster.call("scancel", supervised.job)
    assert cluster.wait_for_job(supervised.job, ["CANCELLED", "COMPLETED", "FAILED", "PENDING"],
                                60)["JobState"] == "CANCELLED", supervised.tail()
    done = supervised.done()
    assert 12 <= done < STEPS
    machines.wait_until(lambda: not cluster.workers(), 20, "no rank is left")
    again = Supervised(cluster, binary, folder)
    again.finish()
    assert whole_curve(again.dir) == undisturbed
