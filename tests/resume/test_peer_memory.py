"""Killed ranks go on from the memory of the machines that are left.

Ranks pretend to be on several machines: a name (LONGHAUL_NODE_NAME) and a memory
(LONGHAUL_MEMORY_DIR) of its own for each."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from runs import PACE, curve, tensors, write_config

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))
from test_failures import ENVIRONMENT, finish, rank_pids  # noqa: E402

STEPS = 60
SETTINGS = [f"run.steps={STEPS}", "checkpoint.every=10", "resilience.peer_memory_every=1",
            "batch.micro_size=1"]
RESUMED = re.compile(r"resume from step (\d+) in memory of (\d+) nodes? "
                     r"\(checkpoint on disk: (step \d+|none)\)")


class Cluster:
    def __init__(self, binary, path, nodes=4, per_node=1, last=STEPS):
        self.binary, self.path, self.last = binary, path, last
        self.nodes, self.per_node = nodes, per_node
        self.run_dir = path / "run"
        self.config = write_config(path)
        (path / "memory").mkdir()

    def memory(self, node):
        return self.path / "memory" / f"n{node}"

    def start(self, *sets, nodes=None, per_node=None):
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        words = [w for s in [*SETTINGS, *sets] for w in ("--set", s)]
        for node in range(nodes or self.nodes):
            command += [":"] if node > 0 else []
            command += ["-n", str(per_node or self.per_node), "env", f"LONGHAUL_NODE_NAME=n{node}",
                        f"LONGHAUL_MEMORY_DIR={self.memory(node)}", self.binary("longhaul"),
                        "train", str(self.config), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=ENVIRONMENT)

    def train(self, *sets, **where):
        process = self.start(*sets, **where)
        code, errors = finish(process)
        assert code == 0, errors
        return self.log()

    def hold_until_copied(self, process):
        """Holds the run between two steps until each part and its copy are the same."""
        (self.run_dir / "PAUSE").touch()
        limit = time.monotonic() + 120
        while "paused until" not in self.log() or not self.copied():
            assert process.poll() is None and time.monotonic() < limit, process.communicate()
            time.sleep(0.05)

    def copied(self):
        parts = {}
        for part in parts_of(self.path / "memory"):
            parts.setdefault(part.name, []).append(part.read_bytes())
        return all(len(files) == 2 and files[0] == files[1] for files in parts.values())

    def kill_all(self, *sets, at=25, copied=False, **where):
        """Starts the run and kills all ranks at once: at some moment during or after a step, or
        (`copied`) between two steps, when every copy is complete."""
        before = self.attempt()
        process = self.start(PACE, *sets, **where)
        limit = time.monotonic() + 120
        while self.attempt() == before or self.reached() < at:
            assert process.poll() is None and time.monotonic() < limit, process.communicate()
            time.sleep(0.01)
        if copied:
            self.hold_until_copied(process)
        time.sleep(random.random() * 0.05)
        for pid in [*rank_pids(process.pid).values(), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.communicate()
        (self.run_dir / "PAUSE").unlink(missing_ok=True)
        reached = self.reached()
        assert at <= reached < self.last
        return reached

    def records(self):
        metrics = self.run_dir / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [r for r in found if "grad_norm" in r] or [{"attempt": 0, "step": 0}]

    def attempt(self):
        return self.records()[-1]["attempt"]

    def reached(self):
        return self.records()[-1]["step"]

    def log(self):
        return (self.run_dir / "log.txt").read_text()

    def resumed(self):
        """Step, machines and checkpoint of the last start from memory."""
        found = RESUMED.findall(self.log())
        assert found, self.log()
        return int(found[-1][0]), int(found[-1][1]), found[-1][2]

    def final(self):
        return tensors(self.run_dir / "checkpoints" / f"step_{STEPS:08}")


@pytest.fixture(scope="module")
def undisturbed(run, tmp_path_factory):
    """The same training without memory and without deaths: its curve and last state."""
    done = {}

    def call(ranks, *sets):
        key = (ranks, sets)
        if key not in done:
            path = tmp_path_factory.mktemp("undisturbed")
            words = [w for s in [*SETTINGS, "resilience.peer_memory_every=0", *sets]
                     for w in ("--set", s)]
            run("longhaul", "train", write_config(path), *words, ranks=ranks)
            last = path / "run" / "checkpoints" / f"step_{STEPS:08}"
            done[key] = curve(path / "run"), tensors(last)
        return done[key]

    return call


def parts_of(path, pattern="*.part"):
    return sorted(path.rglob(pattern))


def assert_undisturbed(cluster, reference):
    losses, last = reference
    assert curve(cluster.run_dir) == losses
    assert cluster.final() == last


ZERO = ["parallel.zero=1"]


def test_a_lost_machine_costs_no_step_and_no_bit(binary, tmp_path, undisturbed):
    cluster = Cluster(binary, tmp_path)
    reached = cluster.kill_all(*ZERO)
    shutil.rmtree(cluster.memory(1))
    # A checkpoint is asked for at each tenth step, and the last one may not have been written to
    # its end.
    saved = max(int(path.name.removeprefix("step_"))
                for path in (cluster.run_dir / "checkpoints").glob("step_*")
                if (path / "manifest.json").exists())
    cluster.train(*ZERO)
    step, nodes, disk = cluster.resumed()
    # The record of a step is written before the step is kept in memory.
    assert reached - 2 <= step <= reached + 1 and nodes == 3
    assert disk == f"step {saved}" and step - 20 < saved <= step
    assert_undisturbed(cluster, undisturbed(4, *ZERO))
    assert not parts_of(tmp_path / "memory"), "an orderly end leaves nothing"
    assert not (cluster.run_dir / "memory.json").exists()


@pytest.mark.soak
def test_two_neighbours_lost_go_on_from_disk(binary, tmp_path, undisturbed):
    cluster = Cluster(binary, tmp_path)
    reached = cluster.kill_all(*ZERO)
    for node in (1, 2):
        shutil.rmtree(cluster.memory(node))
    log = cluster.train(*ZERO)
    assert "in memory is not whole: 1 of 4 parts are on no machine" in log
    assert not RESUMED.search(log)
    assert f"step_{reached // 10 * 10:08}" in log.partition("is not whole")[2]
    assert_undisturbed(cluster, undisturbed(4, *ZERO))


@pytest.mark.soak
def test_of_a_damaged_copy_the_other_is_used(binary, tmp_path, undisturbed):
    cluster = Cluster(binary, tmp_path)
    # A copy that was on its way at the kill would be lost. Then no machine would have this step of
    # rank 2, whose own part is damaged below.
    cluster.kill_all(*ZERO, copied=True)
    # Both slots of one copy of rank 2's state.
    parts = parts_of(cluster.memory(2), "*rank_00002.part")
    assert len(parts) == 2
    for part in parts:
        data = bytearray(part.read_bytes())
        data[-1000] ^= 4
        part.write_bytes(data)
    log = cluster.train(*ZERO)
    assert "COPY DAMAGED (rank 2)" in log
    assert cluster.resumed()[1] == 4
    assert_undisturbed(cluster, undisturbed(4, *ZERO))


# `make soak` tries the other layouts.
@pytest.mark.soak
@pytest.mark.parametrize("sets", [["parallel.zero=0"]], ids=["zero0"])
def test_two_deaths_cost_no_bit(binary, tmp_path, undisturbed, sets):
    cluster = Cluster(binary, tmp_path, nodes=2, per_node=2)
    cluster.kill_all(*sets, at=15)
    shutil.rmtree(cluster.memory(0))
    before = cluster.reached()
    cluster.kill_all(*sets, at=before + 8)
    first = cluster.resumed()[0]
    shutil.rmtree(cluster.memory(1))
    cluster.train(*sets)
    assert 12 <= first < before + 2 <= cluster.resumed()[0]
    assert_undisturbed(cluster, undisturbed(4, *sets))


@pytest.mark.soak
def test_a_stopped_run_has_saved_and_leaves_nothing_in_memory(binary, tmp_path, undisturbed):
    cluster = Cluster(binary, tmp_path, nodes=2)
    process = cluster.start(PACE, *ZERO)
    limit = time.monotonic() + 120
    while cluster.reached() < 13:
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    for pid in rank_pids(process.pid).values():
        os.kill(pid, signal.SIGTERM)
    assert finish(process)[0] == 75
    reached = cluster.reached()
    assert 13 <= reached < STEPS
    assert not parts_of(tmp_path / "memory")
    assert (cluster.run_dir / "checkpoints" / f"step_{reached:08}" / "manifest.json").exists()
    cluster.train(*ZERO)
    assert_undisturbed(cluster, undisturbed(2, *ZERO))


@pytest.mark.soak
def test_fewer_ranks_read_the_memory_of_more(binary, tmp_path, undisturbed):
    cluster = Cluster(binary, tmp_path, nodes=2, per_node=2)
    reached = cluster.kill_all(*ZERO)
    cluster.train(*ZERO, per_node=1)
    assert reached - 2 <= cluster.resumed()[0]
    losses = undisturbed(4, *ZERO)[0]
    ours = curve(cluster.run_dir)
    assert len(ours) == STEPS
    for mine, theirs in zip(ours, losses):
        assert abs(mine[0] - theirs[0]) < 2e-3 * theirs[0]


@pytest.mark.soak
def test_a_rollback_by_hand_does_not_meet_its_future(binary, tmp_path, undisturbed):
    cluster = Cluster(binary, tmp_path, nodes=2)
    cluster.kill_all(*ZERO)
    # The run goes back to step 10 and is killed before anything new could be kept.
    cluster.kill_all(*ZERO, "checkpoint.resume=10", "resilience.peer_memory_every=1000", at=13)
    assert not parts_of(tmp_path / "memory", "a1_*")
    cluster.train(*ZERO)
    assert not RESUMED.search(cluster.log())
    assert_undisturbed(cluster, undisturbed(2, *ZERO))


@pytest.mark.soak
def test_other_settings_are_refused_and_the_memory_stays(binary, tmp_path):
    cluster = Cluster(binary, tmp_path, nodes=2)
    cluster.kill_all(*ZERO)
    parts = parts_of(tmp_path / "memory")
    process = cluster.start(*ZERO, "run.seed=7")
    code, errors = finish(process)
    assert code == 78 and "run.seed" in errors[0], errors
    assert parts_of(tmp_path / "memory") == parts
    config = tmp_path / "model/config.json"
    config.write_text(config.read_text().replace("10000.0", "20000.0"))
    code, errors = finish(cluster.start(*ZERO))
    assert code == 78 and "rope_theta is 20000, was 10000" in errors[0], errors
    assert parts_of(tmp_path / "memory") == parts


@pytest.mark.soak
def test_one_machine_alone_says_so_and_a_new_run_begins_anew(binary, tmp_path):
    cluster = Cluster(binary, tmp_path, nodes=1, per_node=2)
    cluster.kill_all(*ZERO, "checkpoint.every=0")
    assert "there is only one copy, which is lost with the machine" in cluster.log()
    reached = cluster.reached()
    cluster.kill_all(*ZERO, "checkpoint.every=0", at=reached + 5)
    assert reached - 2 <= cluster.resumed()[0] and cluster.resumed()[2] == "none"
    # Another run begins in the same place. What the old run kept in memory does not belong to it.
    shutil.rmtree(cluster.run_dir)
    cluster.train(*ZERO, "run.stop_after=2")
    assert not RESUMED.search(cluster.log())
    first = json.loads((cluster.run_dir / "metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] <= 1
