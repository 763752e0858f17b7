"""Long supervised runs on the cluster under one fault after the other, for
LONGHAUL_FAULT_MINUTES (60) or LONGHAUL_FAULT_COUNT faults, at random by LONGHAUL_FAULT_SEED. A
share LONGHAUL_FAULT_HARD (0.3) of them are those of hard_faults.py: whole parts of the cluster,
what supervises the run, and pairs.

After each: steps ascend from where the run was started again, one writer made them, nobody is
left out without a harm of its own, and no job stood RUNNING without a rank for long. At the end of a
run: the curve is the undisturbed one's, and every second of the run is in one class.

With LONGHAUL_FAULT_MIRROR=1 each run mirrors its checkpoints to a store of objects on the head
node, and its last checkpoint is there at its end.

The cluster is tended as an administrator would: nodes that went down are switched on again. The
job waits 5 s in the queue and not Slurm's 120 s (see Cluster, credential_seconds)."""

import collections
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time

import pytest
from faults import FAULTS, Supervised, recovery, records, reference, whole_curve
from hard_faults import CLOCK_SHIFT, EMPTY_SECONDS, HARD
from machines import wait_until
from mirror import ClusterStore

MINUTES = float(os.environ.get("LONGHAUL_FAULT_MINUTES", "60"))
COUNT = int(os.environ.get("LONGHAUL_FAULT_COUNT", "100000"))
HARD_SHARE = float(os.environ.get("LONGHAUL_FAULT_HARD", "0.3"))
HARD_KINDS = os.environ.get("LONGHAUL_FAULT_HARD_KINDS", " ".join(HARD)).split()
SEED = int(os.environ.get("LONGHAUL_FAULT_SEED", time.time_ns() % 1_000_000))
MIRROR = os.environ.get("LONGHAUL_FAULT_MIRROR") == "1"
STEPS = int(os.environ.get("LONGHAUL_FAULT_STEPS", "1500"))
# Seconds by which each step is made longer.
DELAY = float(os.environ.get("LONGHAUL_FAULT_DELAY", "0.1"))
# How often each fault is drawn. A fault that takes a node costs a start from the queue once the
# spares are used up.
WEIGHTS = {"kill_one_worker": 30, "kill_workers_of_a_node": 14, "kill_supervisor": 12,
           "stop_one_worker": 10, "restart_slurmctld": 10, "damage_newest_checkpoint": 10,
           "signal_before_limit": 3, "lose_a_node": 4, "cut_network": 3, "kill_slurmd": 3,
           "lose_batch_host": 3}
MEND_SECONDS = 10  # from a node's going down until somebody comes
SETTLE_SECONDS = 25  # within which Slurm notices that a node's daemon is gone


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Storm:
    """Makes faults in runs, and records what each of them cost."""

    def __init__(self, cluster, choice):
        self.cluster = cluster
        self.choice = choice
        self.costs = collections.defaultdict(list)  # fault -> (seconds, steps made again)
        self.end = time.monotonic() + 60 * MINUTES
        self.harmed = set()  # nodes that may be left out for what was done to them
        self.longest_empty = 0.0
        self._empty_since = None
        self._tended = 0.0
        self._down = {}  # node -> when that was seen

    def count(self):
        return sum(map(len, self.costs.values()))

    def over(self):
        return time.monotonic() > self.end or self.count() >= COUNT

    def tend(self, run):
        """Mends what Slurm has noticed as broken; for a job that waits, mends everything."""
        if time.monotonic() - self._tended < 2.0:
            return
        self._tended = time.monotonic()
        waits = run.state == "PENDING"
        states = self.cluster.node_states()
        down = {name for name in self.cluster.nodes
                if states.get(name, "").startswith(("down", "drain"))}
        self._down = {name: self._down.get(name, self._tended) for name in down}
        for name in self.cluster.nodes:
            if waits or self._tended - self._down.get(name, self._tended) > MEND_SECONDS:
                self.cluster.mend(name)
        if waits:
            self.cluster.release_if_held(run.job)
        self.look_for_emptiness(run)

    def look_for_emptiness(self, run):
        if run.state != "RUNNING" or self.cluster.workers():
            self._empty_since = None
            return
        self._empty_since = self._empty_since or time.monotonic()
        empty = time.monotonic() - self._empty_since
        self.longest_empty = max(self.longest_empty, empty)
        assert empty < EMPTY_SECONDS, run.tail(f"RUNNING without a rank for {empty:.0f} s")

    def strike_hard(self, run):
        name = self.choice.choice(HARD_KINDS)
        before = run.done()
        self.harmed |= HARD[name](run, self.choice)
        moment, furthest = time.time(), run.done()
        goal = min(furthest + 3, STEPS)

        def went_on():
            run.alive()
            self.tend(run)
            return run.done() >= goal

        wait_until(went_on, 400, lambda: f"a step after {name}: {run.tail()}")
        first = min(r["time"] for r in records(run.dir) if r["step"] >= goal)
        cost = (max(first - moment, 0.0), 0)
        self.costs[name].append(cost)
        say(f"{self.count()}. {name} at step {before}: {cost[0]:.1f} s")

    def strike(self, run):
        if self.choice.random() < HARD_SHARE:
            self.strike_hard(run)
        else:
            self.strike_once(run)
        check_invariants(run, self.harmed)

    def strike_once(self, run):
        name = self.choice.choices(list(WEIGHTS), WEIGHTS.values())[0]
        if name == "signal_before_limit" and not run.of_script():
            name = "kill_one_worker"  # the signal goes to the batch script alone
        if name in ("lose_a_node", "cut_network", "kill_slurmd", "lose_batch_host"):
            self.harmed |= set(self.cluster.nodes)  # the fault itself chooses one of them
        began = time.time()
        FAULTS[name](run, self.choice)
        moment, before = time.time(), run.done()
        if name == "restart_slurmctld":
            run.wait_for_step(before + 2)
            times = sorted(r["time"] for r in records(run.dir) if r["time"] > began - 1)
            cost = (max(b - a for a, b in itertools.pairwise(times)), 0)
        elif name == "kill_slurmd":
            cost = self.lapse(run, moment, before)
        else:
            cost = recovery(run, moment, before, 300, lambda: self.tend(run))
        self.costs[name].append(cost)
        say(f"{self.count()}. {name} at step {before}: {cost[0]:.1f} s, {cost[1]} steps again")

    def lapse(self, run, moment, before):
        """Waits until Slurm takes the node for down, since the node works until then; the fault
        counts from that moment."""
        limit = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < limit and run.done() < STEPS - 20:
            time.sleep(0.2)
            for event in run.events("fault"):
                if event["time"] > moment:
                    return recovery(run, event["time"] - 0.001, before, 300, lambda: self.tend(run))
        return 0.0, 0

    def at(self, run):
        """Makes faults until the run is nearly done; the run then ends by itself."""
        while not self.over() and run.done() < STEPS - 40:
            run.wait_for_step(run.done() + self.choice.randint(2, 12))
            time.sleep(self.choice.uniform(0, 0.3))
            self.strike(run)
        furthest, limit = run.done(), time.monotonic() + 400
        while run.alive() != "COMPLETED":
            if run.done() > furthest:
                furthest, limit = run.done(), time.monotonic() + 400
            assert time.monotonic() < limit, run.tail("no step for 400 s before its end")
            self.tend(run)
            time.sleep(0.5)
        run.finish()

    def table(self):
        lines = ["fault | count | seconds to the next new step, median, worst "
                 "| steps made again, median, worst"]
        for name, costs in sorted(self.costs.items()):
            seconds, steps = zip(*costs)
            lines.append(f"{name} | {len(costs)} | {statistics.median(seconds):.1f}, "
                         f"{max(seconds):.1f} | {statistics.median(steps):.0f}, {max(steps)}")
        return "\n".join(lines)


def check_invariants(run, harmed):
    """Checks what must hold after each fault, whichever it was."""
    starts = {event["step"] for event in run.events("start")}
    for last, record in itertools.pairwise(records(run.dir)):
        goes_on = record["step"] == last["step"] + 1
        assert goes_on or record["step"] - 1 in starts, (last, record, sorted(starts))
    for node in run.excluded():
        assert node["node"] in harmed or node.get("kind") == "faults", (node, harmed)


def check_ledger(binary, run):
    """Expects every second from the first event to the last to be in one class."""
    done = subprocess.run([binary("longhaul"), "report", run.dir, "--json"], capture_output=True,
                          text=True, check=True, timeout=60)
    ledger = json.loads(done.stdout)["ledger"]
    say(f"ledger {ledger}")
    assert min(ledger["by_class"].values()) >= 0
    assert sum(ledger["by_class"].values()) == pytest.approx(ledger["seconds"], abs=0.1)
    times = [event["time"] for event in run.events()]
    if run.events("refused_start"):
        # A start that finds the run done leaves the ledger's time as it was.
        times = [time for time in times if time <= run.events("end")[-1]["time"]]
    assert ledger["seconds"] == pytest.approx(max(times) - min(times), abs=10.0)


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"), STEPS)


def test_runs_live_through_many_faults_and_lose_nothing(cluster, binary, folder, undisturbed):
    say(f"seed {SEED}")
    storm = Storm(cluster, random.Random(SEED))
    runs = 0
    store = ClusterStore(cluster) if MIRROR else None
    try:
        while not storm.over():
            runs += 1
            place = folder / f"run{runs}"
            place.mkdir()
            # Every second run also keeps its newest state in its nodes' memory.
            memory = ["resilience.peer_memory_every=1"] if runs % 2 == 0 else []
            # A save is too short here for the run to learn its pauses, and a hang is noticed after
            # 600 s without that.
            memory.append("resilience.hang_timeout_s=20")
            # Longer than a minute's pause, and with time left for what supervises it.
            memory.append(f'debug.delays=[{{phase = "gradients", seconds = {DELAY}}}]')
            clocks = {"LD_PRELOAD": str(binary("liblonghaul_clock_shift.so")),
                      "LONGHAUL_CLOCK_SHIFT": CLOCK_SHIFT}
            if store:
                memory.append(f'checkpoint.mirror="{store.address(place.name)}"')
                clocks |= store.environment()
            run = Supervised(cluster, binary, place, *memory, steps=STEPS, spares=2, env=clocks)
            run.wait_for_step(3)
            storm.at(run)
            assert whole_curve(run.dir) == undisturbed
            check_ledger(binary, run)
            if store:
                mirrored = store.whole_steps(place.name)
                say(f"mirrored at the end: steps {mirrored}")
                assert mirrored[-1:] == [STEPS], run.tail(f"mirrored: {mirrored}")
            say(f"run {runs} ended whole, {storm.count()} faults so far")
            cluster.clear()
    finally:
        if store:
            store.stop()
        say(f"seed {SEED}: {storm.count()} faults in {runs} runs of {STEPS} steps\n"
            + storm.table() + f"\nlongest RUNNING without a rank: {storm.longest_empty:.0f} s")

