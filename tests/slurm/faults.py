"""Supervised runs on the cluster, and the faults that they have to live through."""

import json
import random
import re
import signal
import time

import machines
from machines import kill_process, wait_until
from runs import curve, write_config

LAYOUT = ["parallel.tp=2", "batch.micro_size=1", "checkpoint.every=5", "checkpoint.keep=3"]
STEPS = 60


def sets(*values):
    return [word for value in values for word in ("--set", value)]


def reference(run, folder, steps=STEPS):
    """The curve of the same run without supervision or faults, on one machine."""
    config = write_config(folder)
    run("longhaul", "train", config, *sets(*LAYOUT, f"run.steps={steps}"), ranks=8)
    return curve(folder / "run")


class Supervised:
    """A run that `longhaul submit` has started."""

    def __init__(self, cluster, binary, folder, *more, steps=STEPS, options=()):
        self.cluster = cluster
        self.folder = folder
        self.dir = folder / "run"
        config = write_config(folder)
        done = cluster.call(
            binary("longhaul"), "submit", config, "--nodes", 4, "--spares", 1,
            "--ranks-per-node", 2, *options,
            *sets(*LAYOUT, f"run.steps={steps}", *more), cwd=folder)
        self.job = cluster.note_job(re.match(r"job (\d+): ", done.stdout)[1])
        self.steps = steps

    def log(self):
        path = self.dir / f"slurm-{self.job}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def events(self, name=None):
        path = self.dir / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines]
        return [event for event in events if name is None or event["event"] == name]

    def done(self):
        """How many steps have been made."""
        return len(curve(self.dir)) if (self.dir / "metrics.jsonl").exists() else 0

    def wait_for_step(self, step, seconds=90):
        def reached():
            state = self.cluster.job_state(self.job)
            assert state in ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING"), self.tail(state)
            return self.done() >= step

        wait_until(reached, seconds, lambda: f"step {step}: {self.tail()}")

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

    def batch_host(self):
        return self.cluster.job(self.job)["BatchHost"]

    def supervisor(self):
        found = [place for place in self.cluster.find("longhaul", "supervise")
                 if place[0] == self.batch_host()]
        assert found, self.tail("no supervisor")
        return found[0][1]


# Each fault returns when it is done to the run.


def kill_one_worker(run, choice):
    kill_process(choice.choice(list(run.workers().values()))[1])


def kill_workers_of_a_node(run, choice):
    workers = run.workers()
    node = choice.choice(sorted({node for node, _ in workers.values()}))
    for name, pid in workers.values():
        if name == node:
            kill_process(pid)


def kill_supervisor(run, choice):
    kill_process(run.supervisor())


def kill_slurmd(run, choice):
    run.cluster.kill_slurmd(choice.choice([name for name in run.cluster.nodes
                                           if name != run.batch_host()][:4]))


def lose_a_node(run, choice):
    nodes = {name for name, _ in run.workers().values()} - {run.batch_host()}
    run.cluster.power_off(choice.choice(sorted(nodes)))


def lose_batch_host(run, choice):
    run.cluster.power_off(run.batch_host())


def stop_one_worker(run, choice):
    kill_process(choice.choice(list(run.workers().values()))[1], signal.SIGSTOP)


def cut_network(run, choice):
    nodes = {name for name, _ in run.workers().values()} - {run.batch_host()}
    run.cluster.cut(choice.choice(sorted(nodes)))


def restart_slurmctld(run, choice):
    run.cluster.restart_controller(down_seconds=choice.uniform(0, 3))


def damage_newest_checkpoint(run, choice):
    """A bit flips in the newest checkpoint, then a worker dies."""
    steps = wait_until(lambda: sorted((run.dir / "checkpoints").glob("step_*/manifest.json")), 60,
                       "a checkpoint")
    victim = choice.choice(sorted(steps[-1].parent.glob("*.safetensors")))
    data = bytearray(victim.read_bytes())
    data[choice.randrange(len(data) // 2, len(data))] ^= 1 << choice.randrange(8)
    victim.write_bytes(bytes(data))
    kill_one_worker(run, choice)


def signal_before_limit(run, choice):
    run.cluster.call("scancel", "--batch", "--signal=USR1", run.job)


FAULTS = {fault.__name__: fault for fault in [
    kill_one_worker, kill_workers_of_a_node, kill_supervisor, kill_slurmd, lose_a_node,
    lose_batch_host, stop_one_worker, cut_network, restart_slurmctld, damage_newest_checkpoint,
    signal_before_limit]}


def strike(run, name, seed):
    """Does the fault to a run that trains, at a moment by the seed; seconds until the run has
    made a step that it had not made before."""
    choice = random.Random(seed)
    run.wait_for_step(choice.randint(6, 20))
    time.sleep(choice.uniform(0, 0.3))
    FAULTS[name](run, choice)
    begin = time.monotonic()
    before = run.done()
    run.wait_for_step(min(run.steps, before + 2), seconds=240)
    return time.monotonic() - begin


__all__ = ["FAULTS", "Supervised", "machines", "reference", "strike"]
