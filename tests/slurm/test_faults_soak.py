"""Every fault on the cluster alone, LONGHAUL_FAULTS times each at moments by the seed; "rest"
stands for once each of those that test_faults.py has not."""

import os

import pytest
import test_faults
from faults import FAULTS, QUIET, STEPS, Supervised, machines, reference, strike, whole_curve

TIMES = os.environ.get("LONGHAUL_FAULTS", "3")
KINDS = [fault for fault in FAULTS
         if TIMES != "rest" or fault not in test_faults.PROCESSES + test_faults.NODES]


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("seed", range(1 if TIMES == "rest" else int(TIMES)))
@pytest.mark.parametrize("fault", KINDS)
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
    # The disk has 4 MB and a checkpoint 1.3 MB. It fills up while the run still has steps to go.
    supervised = Supervised(cluster, binary, folder, "checkpoint.keep=1",
                            'debug.delays=[{phase = "update", seconds = 0.2}]')
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


@pytest.mark.soak
def test_a_slow_rank_is_named_and_waited_for(cluster, binary, folder, undisturbed):
    run = Supervised(
        cluster, binary, folder,
        'debug.delays=[{phase = "gradients", seconds = 0.4, rank = 5}]')
    run.finish()
    # On a machine with fewer cores than ranks, other ranks may be slow for a while, too.
    worst = max(run.events("straggler"), key=lambda event: event["ratio"])
    assert worst["rank"] == 5 and worst["ratio"] > 1.3, run.tail()
    assert not run.events("restart"), run.tail()
    assert whole_curve(run.dir) == undisturbed


@pytest.mark.soak
def test_the_time_limit_is_survived(cluster, binary, folder, undisturbed):
    """Slurm sends its signal before the time limit, the run saves, and it goes on from the queue in
    the same job."""
    # 60 steps of 2 s do not end before the signal, 100 s after the start.
    run = Supervised(
        cluster, binary, folder, 'debug.delays=[{phase = "gradients", seconds = 2.0, rank = 5}]',
        options=("--time", "00:02:00", "--signal-seconds", "20"))
    run.finish(seconds=400)
    assert cluster.job(run.job)["Restarts"] != "0", run.tail()
    assert whole_curve(run.dir) == undisturbed
