"""Supervised runs on the cluster, and the faults that they have to live through."""

import contextlib
import json
import os
import random
import re
import signal
import time

import machines
import slurm_cluster
from machines import kill_process, wait_until
from runs import PACE, write_config

LAYOUT = ["parallel.tp=2", "batch.micro_size=1", "checkpoint.every=5", "checkpoint.keep=3"]
STEPS = 60


def sets(*values):
    return [word for value in values for word in ("--set", value)]


def reference(run, folder, steps=STEPS):
    """The curve of the same run on one machine, without a supervisor and without faults."""
    config = write_config(folder)
    run("longhaul", "train", config, *sets(*LAYOUT, f"run.steps={steps}"), ranks=8,
        timeout=200 + steps)
    return whole_curve(folder / "run")


def lines_of(path):
    """The records of a file of lines, without a last line that is only half written."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def clock_shift(event):
    """Seconds by which a fault has moved the clock of the node that wrote this event."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    shift = event.get("booted", booted) - booted
    return shift if abs(shift) > 60 else 0.0


def told_events(run_dir):
    """The events of a run, their times by this machine's clock."""
    events = lines_of(run_dir / "events.jsonl")
    return [event | {"time": event["time"] - clock_shift(event)} for event in events]


def records(run_dir):
    """All steps that were ever made, also repeated ones, in the order of the file. Their times are
    by this machine's clock."""
    shifts = {event["attempt"]: clock_shift(event)
              for event in lines_of(run_dir / "events.jsonl") if event["event"] == "start"}
    # Files that were moved away come first, the oldest before the others, and then the file that
    # grows.
    files = sorted(run_dir.glob("metrics.jsonl.*"), key=lambda path: int(path.suffix[1:]))
    return [record | {"time": record["time"] - shifts.get(record["attempt"], 0.0)}
            for path in [*files, run_dir / "metrics.jsonl"] for record in lines_of(path)
            if "grad_norm" in record]


def whole_curve(run_dir):
    """Loss, gradient norm and rate of each step in order. Fails where a repeated step had other
    values."""
    found = {}
    for record in records(run_dir):
        values = (record["loss"], record["grad_norm"], record["lr"])
        assert found.setdefault(record["step"], values) == values, record
    return [values for _, values in sorted(found.items())]


class Supervised:
    """A run that `longhaul submit` has started."""

    def __init__(self, cluster, binary, folder, *more, steps=STEPS, spares=1,
                 options=(), env=None, config=None, layout=LAYOUT):
        self.cluster = cluster
        self.folder = folder
        self.dir = folder / "run"
        self.program = os.path.dirname(binary("longhaul"))
        self.temporary = slurm_cluster.TEMPORARY
        config = config or write_config(folder)
        if not any(value.startswith("debug.delays") for value in more):
            more = (PACE, *more)
        done = cluster.call(
            binary("longhaul"), "submit", config, "--nodes", 4, "--spares", spares,
            "--ranks-per-node", 2, *options,
            *sets(*layout, f"run.steps={steps}", *more), cwd=folder,
            env={"TMPDIR": self.temporary, **(env or {})})
        self.job = cluster.note_job(re.match(r"job (\d+): ", done.stdout)[1])
        self.steps = steps
        self.state = ""
        self._asked = 0.0

    def log(self):
        path = self.dir / f"slurm-{self.job}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def events(self, name=None):
        return [event for event in told_events(self.dir) if name in (None, event["event"])]

    def done(self):
        """How many steps have been made."""
        return len({record["step"] for record in records(self.dir)})

    def alive(self):
        """Fails when the job has ended. Slurm is asked once a second only, since that takes
        time."""
        if time.monotonic() - self._asked < 1.0:
            return self.state
        self._asked = time.monotonic()
        self.state = self.cluster.job_state(self.job)
        assert self.state in ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "COMPLETED"), (
            self.tail(self.state))
        return self.state

    def excluded(self):
        """The entries of the nodes that the run has excluded."""
        path = self.dir / "excluded_nodes.json"
        return json.loads(path.read_text()) if path.exists() else []

    def left_out(self):
        return [entry["node"] for entry in self.excluded()]

    def requeue(self):
        """Gives the job back to the queue; returns when it waits there."""
        self.cluster.scontrol("requeue", self.job)
        self.cluster.wait_for_job(self.job, "PENDING", 60)

    def wait_for_step(self, step, seconds=90):
        wait_until(lambda: self.done() >= step or not self.alive(), seconds,
                   lambda: f"step {step}: {self.tail()}")

    def tail(self, what=""):
        return f"{what} after {self.done()} steps\n{self.log()[-4000:]}"

    def finish(self, seconds=240):
        """Waits for the run's own end; asserts that it is whole."""
        state = self.cluster.wait_for_job(
            self.job, ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"], seconds)
        assert state["JobState"] == "COMPLETED", self.tail(state["JobState"])
        assert self.done() == self.steps, self.tail()

    def workers(self):
        return wait_until(lambda: len(found := self.cluster.workers()) == 8 and found, 60,
                          lambda: f"eight ranks: {self.cluster.workers()} {self.tail()}")

    def supervisor(self):
        """The (node, process id) of the supervisor, on whichever node it is."""
        return wait_until(
            lambda: next((place for place in self.cluster.find("longhaul", "supervise")
                          if machines.state_of(place[1]) not in ("", "Z")), None),
            30, lambda: self.tail("no supervisor"))

    def of_script(self):
        """Whether the supervisor is that of the job's batch script, and not one that stands in for
        it. The script may be gone, or wait beside the one that stands in."""
        host = self.cluster.nodes[self.supervisor()[0]]
        return any(word.endswith("slurm_script") for pid in host.processes()
                   for word in machines.arguments_of(pid))

    def nodes(self):
        """The nodes that train."""
        return sorted({node for node, _ in self.workers().values()})

    def other_nodes(self):
        """The nodes that train, without the supervisor's node."""
        return sorted(set(self.nodes()) - {self.supervisor()[0]})


# Each fault below returns when it has struck the run.


def kill_one_worker(run, choice):
    kill_process(choice.choice(list(run.workers().values()))[1])


def kill_workers_of_a_node(run, choice):
    workers = run.workers()
    node = choice.choice(sorted({node for node, _ in workers.values()}))
    for name, pid in workers.values():
        if name == node:
            kill_process(pid)


def kill_supervisor(run, choice):
    kill_process(run.supervisor()[1])


def kill_slurmd(run, choice):
    """Kills Slurm's daemon on a node. The node works on, but Slurm takes it for lost."""
    run.cluster.kill_slurmd(choice.choice(run.other_nodes()))


def lose_a_node(run, choice):
    run.cluster.power_off(choice.choice(run.other_nodes()))


def lose_batch_host(run, choice):
    run.cluster.power_off(run.supervisor()[0])


def stop_one_worker(run, choice):
    kill_process(choice.choice(list(run.workers().values()))[1], signal.SIGSTOP)


def cut_network(run, choice):
    run.cluster.cut(choice.choice(run.other_nodes()))


def restart_slurmctld(run, choice):
    run.cluster.restart_controller(down_seconds=choice.uniform(0, 3))


def damage_newest_checkpoint(run, choice):
    """Flips a bit in the newest checkpoint and then kills a worker."""
    def complete():
        return sorted((run.dir / "checkpoints").glob("step_????????/manifest.json"))

    # A run whose only checkpoint is damaged ends, since it does not begin anew by itself.
    wait_until(lambda: len(complete()) > 1, 60, "two checkpoints")
    workers = [pid for _, pid in run.workers().values()]
    # All workers are stopped before the kill. Otherwise the next checkpoint could be complete by
    # then.
    for pid in workers:
        kill_process(pid, signal.SIGSTOP)
    victim = choice.choice(sorted(complete()[-1].parent.glob("*.safetensors")))
    data = bytearray(victim.read_bytes())
    data[choice.randrange(len(data) // 2, len(data))] ^= 1 << choice.randrange(8)
    victim.write_bytes(bytes(data))
    kill_process(choice.choice(workers))
    for pid in workers:
        kill_process(pid, signal.SIGCONT)


def signal_before_limit(run, choice):
    run.cluster.call("scancel", "--batch", "--signal=USR1", run.job)


FAULTS = {fault.__name__: fault for fault in [
    kill_one_worker, kill_workers_of_a_node, kill_supervisor, kill_slurmd, lose_a_node,
    lose_batch_host, stop_one_worker, cut_network, restart_slurmctld, damage_newest_checkpoint,
    signal_before_limit]}


# These faults interrupt the run later or not at all.
QUIET = {"restart_slurmctld", "kill_slurmd"}


def recovery(run, moment, before, seconds=240, meanwhile=lambda: None):
    """Waits for the first step that had not been made before the fault of that moment.
    Returns the seconds until then and how many steps were made again."""
    found = []
    # On a busy machine the run may report a fault before the process that made it reads the clock.
    told_from = moment - 1.0

    def next_step():
        meanwhile()
        run.alive()
        starts = [event["time"] for event in run.events()
                  if event["event"] in ("fault", "supervisor_start")
                  and event["time"] > told_from]
        if not starts:
            return False
        made = records(run.dir)
        furthest = max((r["step"] for r in made if r["time"] < starts[0]), default=0)
        found[:] = [r for r in made if r["time"] > starts[0]]
        return any(r["step"] > furthest for r in found) and furthest

    furthest = wait_until(next_step, seconds, lambda: f"a step again: {run.tail()}")
    again = [r for r in found if r["step"] <= furthest]
    first = min(r["time"] for r in found if r["step"] > furthest)
    assert furthest >= before
    return max(first - moment, 0.0), len(again)


def strike(run, name, seed):
    """Makes the fault in a run that trains, at a moment by the seed. Returns the seconds until the
    run has made a step that it had not made before."""
    choice = random.Random(seed)
    run.wait_for_step(run.done() + choice.randint(6, 14))
    time.sleep(choice.uniform(0, 0.3))
    FAULTS[name](run, choice)
    moment, before = time.time(), run.done()
    if name not in QUIET:
        return recovery(run, moment, before)[0]
    run.wait_for_step(min(run.steps, before + 2))
    return time.time() - moment


__all__ = ["FAULTS", "QUIET", "Supervised", "machines", "records", "recovery", "reference",
           "strike", "whole_curve"]
