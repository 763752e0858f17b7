"""Which process supervises a run when its supervisor is lost, stopped or taken down with its
machine: the run goes on by itself, and no healthy node is left out."""

import signal
import time

import machines
import pytest
from faults import Supervised, recovery, reference, whole_curve
from hard_faults import take_down_in_order
from machines import kill_process

STEPS = 120


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"), STEPS)


def wait_for_recovery(run, what, seconds):
    took, again = recovery(run, time.time(), run.done(), seconds=seconds)
    print(f"{what}: {took:.1f} s until the next new step, {again} made again")


def test_a_supervisor_that_stood_still_takes_its_pause_for_nobodys_silence(
        cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, steps=STEPS)
    run.wait_for_step(10)
    _, pid = run.supervisor()
    kill_process(pid, signal.SIGSTOP)
    time.sleep(10)  # agents are lost after 8
    kill_process(pid, signal.SIGCONT)
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert run.left_out() == [], run.tail()
    assert not run.events("restart"), run.tail()
    assert "this supervisor stood still for" in run.log()


def test_a_frozen_supervisor_is_replaced_and_a_rank_that_died_meanwhile_comes_back(
        cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, steps=STEPS)
    run.wait_for_step(10)
    _, pid = run.supervisor()
    kill_process(pid, signal.SIGSTOP)
    kill_process(run.workers()[5][1])
    wait_for_recovery(run, "supervisor frozen, rank killed", 90)
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert run.left_out() == [], run.tail()
    assert machines.state_of(pid) in ("", "Z")


def test_a_batch_host_that_goes_down_in_order_leaves_no_job_without_ranks(
        cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, steps=STEPS, spares=2)
    run.wait_for_step(10)
    host, _ = run.supervisor()
    take_down_in_order(cluster.nodes[host])
    wait_for_recovery(run, "batch host down in order", 120)
    cluster.power_off(host)
    cluster.mend(host)
    run.finish()
    assert whole_curve(run.dir) == undisturbed


def test_the_supervisor_and_its_first_successor_are_lost_together(
        cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, steps=STEPS, spares=2)
    run.wait_for_step(10)
    host, _ = run.supervisor()
    [others] = [switch for switch in cluster.switches if host not in switch]
    first, second = others[:2]
    for name in (host, first):
        cluster.power_off(name)
    wait_for_recovery(run, "supervisor and first successor off", 120)
    assert run.supervisor()[0] == second, "one on another switch than the lost supervisor's"
    for name in (host, first):  # to end as completed the job goes through the queue
        cluster.mend(name)
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert set(run.left_out()) <= {host, first}


def log_on(run, node):
    """The job's log as one node shows it, which may have its own directory in the run's place."""
    path = run.cluster.nodes[node].path_inside(run.dir / f"slurm-{run.job}.log")
    return path.read_text(errors="replace") if path.exists() else ""


def test_a_later_life_never_begins_anew_and_needs_no_batch_host_that_shows_the_run(
        cluster, binary, folder, undisturbed):
    """A start waits for a mount that is late on every node. If only the batch host lacks the mount,
    another node supervises, also where the run is done."""
    run = Supervised(cluster, binary, folder, steps=STEPS, spares=2)
    run.wait_for_step(10)
    host = run.supervisor()[0]
    run.requeue()
    for node in cluster.nodes:
        cluster.cover(node, run.dir)
    before = run.done()
    machines.wait_until(lambda: "does not show" in log_on(run, host), 60,
                        lambda: log_on(run, host))
    asked = machines.wait_until(lambda: log_on(run, host).count("is asked to supervise") == 5, 60,
                                lambda: log_on(run, host))
    assert asked and run.done() == before and "RANDOM" not in log_on(run, host)
    for node in cluster.nodes:
        cluster.uncover(node)
    run.wait_for_step(before + 5)
    run.requeue()
    cluster.cover(host, run.dir)
    run.wait_for_step(run.done() + 5)
    assert run.supervisor()[0] == host, "it waits for the other one"
    assert run.left_out() == [host], run.tail()
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert cluster.job(run.job)["Restarts"] == "2", run.tail()
    assert "weights: RANDOM" not in (run.dir / "log.txt").read_text().partition("attempt 2")[2]


def test_too_little_room_for_the_run_is_nobodys_fault(cluster, binary, folder, undisturbed):
    """The run's own directory has less room than is needed: there is one finding, which is reported
    once, and a rank that is killed comes back on the same nodes."""
    small = cluster.shared / "small"
    (folder / "run").symlink_to(small)
    run = Supervised(cluster, binary, folder, "checkpoint.keep=1", steps=STEPS)
    run.dir = cluster.head.path_inside(small)  # mounted on the machines alone
    run.wait_for_step(10)
    kill_process(run.workers()[5][1])
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert run.left_out() == [], run.tail()
    assert cluster.job(run.job)["Restarts"] == "0"
    shared = run.events("shared_finding")
    assert shared and "are free" in shared[0]["cause"], run.tail()
    assert len(shared[0]["cause"].split("(seen on ")[1].split(", ")) == 5


def test_storage_that_stands_still_is_waited_for_and_nobody_is_blamed(
        cluster, binary, folder, undisturbed):
    """Every write to the run's directory hangs for half a minute. That is longer than the
    supervisor's lease, which nobody can renew or take in that time."""
    disk = cluster.shared / "disk"
    inside = cluster.head.path_inside(disk)
    if not (inside / "lost+found").exists():
        pytest.skip("no loop device for a file system that can be frozen")
    (folder / "run").symlink_to(disk)
    run = Supervised(cluster, binary, folder, steps=STEPS)
    run.dir = inside
    run.wait_for_step(10)
    cluster.call("fsfreeze", "--freeze", disk)
    try:
        time.sleep(5)
        before = run.done()
        time.sleep(25)
        assert run.done() == before, "nothing stood still"
    finally:
        cluster.call("fsfreeze", "--unfreeze", disk)
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert run.left_out() == [], run.tail()
    assert cluster.job(run.job)["Restarts"] == "0", run.tail()


@pytest.mark.soak
def test_a_stand_in_is_lost_while_the_script_waits_beside_it(cluster, binary, folder,
                                                             undisturbed):
    """The script's supervisor was stopped until the one of another node took over. When that is
    lost too, the script and its machine's agent want the lease at the same moment."""
    slow = 'debug.delays=[{phase = "gradients", seconds = 1.0}]'
    run = Supervised(cluster, binary, folder, slow, steps=STEPS, spares=2)
    run.wait_for_step(10)
    host, pid = run.supervisor()
    kill_process(pid, signal.SIGSTOP)
    wait_for_recovery(run, "supervisor frozen", 90)
    kill_process(pid, signal.SIGCONT)
    machines.wait_until(lambda: "this one waits" in run.log(), 30, run.tail)
    stand_in = next(name for name, found in cluster.find("longhaul", "supervise")
                    if name != host and machines.state_of(found) not in ("", "Z"))
    cluster.power_off(stand_in)
    wait_for_recovery(run, "stand-in lost", 120)
    cluster.mend(stand_in)
    run.finish()
    assert whole_curve(run.dir) == undisturbed


@pytest.mark.soak
def test_the_batch_host_is_lost_while_another_node_supervises_in_its_place(
        cluster, binary, folder, undisturbed):
    """No process on that host learns of the supervisor's end, so the supervisor ends the job
    itself."""
    run = Supervised(cluster, binary, folder, steps=STEPS, spares=2)
    run.wait_for_step(10)
    host = run.supervisor()[0]
    run.requeue()
    cluster.cover(host, run.dir)
    run.wait_for_step(run.done() + 5)
    there = next(name for name, _ in cluster.find("longhaul", "supervise") if name != host)
    cluster.power_off(host)
    told = f"{host}, which runs the job's script, is lost"
    machines.wait_until(lambda: told in log_on(run, there), 180, lambda: log_on(run, there))
    cluster.mend(host)
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert cluster.job(run.job)["Restarts"] == "2", run.tail()
