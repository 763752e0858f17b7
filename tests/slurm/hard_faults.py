"""Faults of whole parts of a cluster, of what supervises a run, and of a run that another fault
has just hit. Each returns the nodes that it really harmed, which may be left out for it."""

import contextlib
import os
import pathlib
import signal
import time

import machines
from machines import kill_process

# Seconds for which processes are stopped; some are shorter than others wait for them, and some are
# longer.
PAUSES = list(map(float, os.environ.get("LONGHAUL_FAULT_PAUSES", "5 5 10 60").split()))
# This file is on one machine only. It holds the seconds by which clocks are wrong for programs that
# preload clock_shift.cpp.
CLOCK_SHIFT = "/tmp/clock_shift"
# The longest time in seconds that a job may be RUNNING without a rank: until a lease runs out (12
# s), and a minute more.
EMPTY_SECONDS = 72


def pause(pids, seconds):
    for pid in pids:
        kill_process(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        kill_process(pid, signal.SIGCONT)


def pause_supervisor(run, choice):
    node, pid = run.supervisor()
    pause([pid], choice.choice(PAUSES))
    return {node}


def pause_agent(run, choice):
    node, pid = choice.choice(run.cluster.find("longhaul", "agent"))
    pause([pid], choice.choice(PAUSES))
    return {node}


def pause_launchers(run, choice):
    """Stops every srun of the supervisor's node for a while."""
    node, _ = run.supervisor()
    pause([pid for name, pid in run.cluster.find("srun") if name == node], choice.choice(PAUSES))
    return set()


def kill_agent(run, choice):
    node, pid = choice.choice(run.cluster.find("longhaul", "agent"))
    kill_process(pid)
    return {node}


def take_down_in_order(machine, rest=0.1):
    """Kills the processes of a machine one after the other, first those of Slurm. The machine's
    network stays up."""
    for pid in machine.processes():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(rest)


def batch_host_in_order(run, choice):
    host, _ = run.supervisor()
    take_down_in_order(run.cluster.nodes[host], choice.uniform(0.0, 0.2))
    return {host}


def lose_supervisor_and_another(run, choice):
    host, _ = run.supervisor()
    other = choice.choice(run.other_nodes())
    for name in (host, other):
        run.cluster.power_off(name)
    return {host, other}


def lose_three_nodes(run, choice):
    lost = choice.sample(run.nodes(), 3)
    for name in lost:
        run.cluster.power_off(name)
    return set(lost)


def split_cluster(run, choice):
    """Splits the cluster for a while: half of the nodes reach each other and the shared disk, but
    neither the other nodes nor Slurm's controller."""
    names = [name for name, machine in run.cluster.nodes.items() if machine.on]
    half = choice.sample(names, len(names) // 2)
    run.cluster.cut_off_together(half)
    time.sleep(choice.choice([5, 20, 40]))
    for name in half:
        run.cluster.connect(name)
    return set(names)


def slurmctld_down(run, choice):
    """Stops Slurm's controller for longer than a start waits, and kills a worker in that time."""
    cluster = run.cluster
    worker = choice.choice(list(run.workers().values()))[1]
    kill_process(cluster.daemon(cluster.head, "slurmctld"))
    time.sleep(choice.uniform(0, 20))
    kill_process(worker)
    time.sleep(choice.uniform(20, 60))
    cluster.start_controller()
    return set()


def kill_in_a_save(run, choice):
    """Kills a worker while a checkpoint has files and no manifest."""
    worker = choice.choice(list(run.workers().values()))[1]
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        steps = sorted((run.dir / "checkpoints").glob("step_????????"))
        if steps and not (steps[-1] / "manifest.json").exists():
            break
    kill_process(worker)
    return set()


def kill_in_a_restart(run, choice):
    """Kills a worker, and then any process of the run while it is restarted."""
    kill_process(choice.choice(list(run.workers().values()))[1])
    time.sleep(choice.uniform(0.2, 4.0))
    return kill_any(run, choice)


def kill_in_a_take_over(run, choice):
    """Switches the supervisor's node off, and kills any process of the run while another supervisor
    takes over."""
    host, _ = run.supervisor()
    run.cluster.power_off(host)
    time.sleep(choice.uniform(8.0, 20.0))
    return {host} | kill_any(run, choice)


def clock_jumps(run, choice):
    """Sets the clock of one node hours forwards or back for good, and kills a rank."""
    node = choice.choice(run.other_nodes())
    shift = choice.choice([-7200, -3600, 3600, 7200])
    run.cluster.nodes[node].path_inside(CLOCK_SHIFT).write_text(str(shift))
    time.sleep(choice.uniform(0, 2))
    kill_process(choice.choice(list(run.workers().values()))[1])
    return set()


def on_one_node(spoil):
    """Makes a fault of something that one node lacks, which nobody notices before a start, so a
    rank of another node is killed as well. The node is mended when the run has gone on."""
    def fault(run, choice, node=None):
        node = node or choice.choice(run.other_nodes())
        mend = spoil(run, node)
        others = [pid for name, pid in run.workers().values() if name != node]
        kill_process(choice.choice(others))
        goal = min(run.done() + 3, run.steps)
        # If the job waits in the queue, the test mends its nodes as an administrator would.
        machines.wait_until(
            lambda: run.done() >= goal or run.alive() in ("COMPLETED", "PENDING"), 120,
            lambda: run.tail(f"{spoil.__name__} on {node}"))
        if mend is not None:
            mend()
        return {node}

    fault.__name__ = spoil.__name__
    return fault


def covering(name, path_of, read_only):
    def spoil(run, node):
        run.cluster.cover(node, path_of(run), read_only)
        return lambda: run.cluster.uncover(node)

    spoil.__name__ = name
    return on_one_node(spoil)


PLACES = {"run": lambda run: run.dir, "checkpoints": lambda run: run.dir / "checkpoints",
          "program": lambda run: run.program}


@on_one_node
def memory_full(run, node):
    machine = run.cluster.nodes[node]
    machine.fill("/dev/shm", left=0)
    return lambda: machine.run("rm", "-f", "/dev/shm/full")


@on_one_node
def temporary_gone(run, node):
    """Removes the directory that TMPDIR names on a node."""
    machine = run.cluster.nodes[node]
    machine.run("rm", "-rf", run.temporary)
    return lambda: machine.run("mkdir", "-p", run.temporary)


def mount_comes_late(run, choice):
    """Takes the run's directory away on one node, some or all while the job waits in the queue, and
    brings it back while the new start looks for it."""
    cluster = run.cluster
    run.requeue()
    there = sorted(name for name, machine in cluster.nodes.items() if machine.on)
    nodes = choice.sample(there, choice.choice([1, len(there) // 2, len(there)]))
    for name in nodes:
        cluster.cover(name, run.dir)

    def begins():
        # The test acts as an administrator: it mends the nodes that an earlier fault has taken.
        for name, state in cluster.node_states().items():
            if state.startswith(("down", "drain")):
                cluster.mend(name)
        return cluster.job_state(run.job) == "RUNNING"

    machines.wait_until(begins, 120, lambda: run.tail("the life after a requeue"))
    time.sleep(choice.uniform(2, 40))
    for name in nodes:
        cluster.uncover(name)
    return set(nodes)


def suspend_and_resume(run, choice):
    """Suspends the job and resumes it, as an administrator does who needs its nodes for a while."""
    run.cluster.scontrol("suspend", run.job)
    time.sleep(choice.uniform(6, 8))
    run.cluster.scontrol("resume", run.job)
    return set()


def out_of_memory(run, choice):
    """Limits a rank's control group, so that the kernel kills the rank for its memory."""
    node, pid = choice.choice(list(run.workers().values()))
    group = pathlib.Path("/sys/fs/cgroup/memory") / f"longhaul-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(pid))
        (group / "memory.force_empty").write_text("0")
        (group / "memory.limit_in_bytes").write_text("4096")
    except OSError:  # no such control group can be made here: what the kernel does then
        kill_process(pid)
    machines.wait_until(lambda: machines.state_of(pid) in ("", "Z"), 60, "the kernel kills")
    with contextlib.suppress(OSError):
        group.rmdir()
    return {node}


def signal_to_launcher(run, number):
    for _, pid in run.cluster.find("longhaul", "supervise"):
        kill_process(pid, number)


def hang_up(run, choice):
    """Sends SIGHUP, which asks for a save and an end, as SIGTERM does. The job then goes on from
    the queue."""
    signal_to_launcher(run, signal.SIGHUP)
    return set()


def rotate_logs(run, choice):
    """Moves files away, as logrotate does; the run opens them anew."""
    number = 1 + sum(1 for _ in run.dir.glob("metrics.jsonl.*"))
    for name in ("log.txt", "metrics.jsonl"):
        (run.dir / name).rename(run.dir / f"{name}.{number}")
    machines.wait_until(lambda: (run.dir / "metrics.jsonl").exists(), 60,
                        lambda: run.tail("no new metrics.jsonl"))
    return set()


def kill_any(run, choice):
    """Kills any process that belongs to the run, whatever the run is doing."""
    found = [(node, pid) for word in ("supervise", "agent", "train")
             for node, pid in run.cluster.find("longhaul", word)]
    found += run.cluster.find("srun") + list(run.cluster.workers().values())
    found = sorted({place for place in found if machines.state_of(place[1]) not in ("", "Z")})
    if not found:
        return set()
    node, pid = choice.choice(found)
    kill_process(pid)
    return {node}


HARD = {fault.__name__: fault for fault in [
    pause_supervisor, pause_agent, pause_launchers, kill_agent, batch_host_in_order,
    lose_supervisor_and_another, lose_three_nodes, split_cluster, slurmctld_down, kill_in_a_save,
    kill_in_a_restart, kill_in_a_take_over, clock_jumps]}
# Faults of something that only one node lacks.
LACKS = {f"{how}_{what}": covering(f"{how}_{what}", place, how == "read_only")
         for what, place in PLACES.items() for how in ("empty", "read_only")}
LACKS.update(memory_full=memory_full, temporary_gone=temporary_gone)
HARD.update(LACKS, suspend_and_resume=suspend_and_resume, out_of_memory=out_of_memory,
            hang_up=hang_up, rotate_logs=rotate_logs, mount_comes_late=mount_comes_late)

__all__ = ["CLOCK_SHIFT", "EMPTY_SECONDS", "HARD", "LACKS", "kill_any", "take_down_in_order"]
