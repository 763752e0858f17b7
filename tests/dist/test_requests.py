"""Signals in every phase, the files STOP, SAVE and PAUSE, and what ps shows."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import layouts
import pytest
from layouts import build_store
from programs import later
from test_failures import ENVIRONMENT, rank_pids, sets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, steps_of, write_config  # noqa: E402

# The exit codes of a run that a signal has ended and of one that the file STOP has ended; both have
# saved.
INTERRUPTED, STOPPED = 75, 79
LIMIT = 60
LONG = ["run.steps=100000", "checkpoint.every=0", "batch.micro_size=1", "checkpoint.keep=0"]


class Job:
    """A run of some ranks that keep their records."""

    def __init__(self, binary, tmp_path, ranks, *settings):
        self.dir = tmp_path / "run"
        self.records = tmp_path / "records"
        self.ranks = ranks
        # The records of an earlier job would be taken for this job's phase.
        shutil.rmtree(self.records, ignore_errors=True)
        command = [binary("longhaul"), "train", str(write_config(tmp_path)),
                   *sets(*LONG, *settings)]
        if ranks > 1:
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks),
                       *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(ENVIRONMENT, LONGHAUL_RECORD_DIR=str(self.records)))

    def until(self, condition, what):
        limit = time.monotonic() + LIMIT
        while not condition():
            assert self.process.poll() is None, (what, self.process.communicate())
            if time.monotonic() > limit:
                self.process.kill()
                raise AssertionError(f"it never came to this: {what}")
            time.sleep(0.02)

    def in_phase(self, phase):
        def seen():
            for rank in range(self.ranks):
                try:
                    data = (self.records / f"rank_{rank:05}.record").read_bytes()
                except OSError:
                    return False
                if phase.encode() + b"\0" not in data[:400]:
                    return False
            return True
        self.until(seen, phase)

    def at_step(self, step):
        metrics = self.dir / "metrics.jsonl"
        self.until(lambda: metrics.exists() and len(steps_of(self.dir)) >= step, f"step {step}")

    def send(self, number, only=None):
        """Sends a signal to every rank, as Slurm does, or to one rank only."""
        pids = rank_pids(self.process.pid) if self.ranks > 1 else {0: self.process.pid}
        for rank, pid in pids.items():
            if only is None or rank == only:
                os.kill(pid, number)

    def end(self):
        """The exit code, and the seconds until the end."""
        begin = time.monotonic()
        try:
            _, self.errors = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, time.monotonic() - begin

    def checkpoints(self):
        return sorted(int(p.parent.name[5:]) for p in self.dir.glob("checkpoints/*/manifest.json"))

    def log(self):
        return (self.dir / "log.txt").read_text()

    def events(self, name):
        lines = (self.dir / "events.jsonl").read_text().splitlines()
        return [e for e in map(json.loads, lines) if e["event"] == name]


def delay(phase, seconds):
    return f'debug.delays=[{{phase = "{phase}", seconds = {seconds}}}]'


@pytest.fixture(scope="module")
def store(run, tmp_path_factory):
    return build_store(run, tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("ranks,number,phase", [
    (2, signal.SIGUSR1, "load"),
    pytest.param(1, signal.SIGTERM, "start", marks=pytest.mark.soak),
    pytest.param(1, signal.SIGTERM, "load", marks=pytest.mark.soak),
    pytest.param(2, signal.SIGUSR1, "start", marks=pytest.mark.soak)])
def test_before_the_first_step_nothing_is_saved(binary, tmp_path, ranks, number, phase):
    # The delay is longer than the grace: the process ends without waiting for its own start.
    job = Job(binary, tmp_path, ranks, delay(phase, 30))
    job.in_phase(phase)
    job.send(number)
    code, seconds = job.end()
    assert code == INTERRUPTED and seconds < 10
    assert signal.Signals(number).name + " before the first step" in job.errors
    assert job.checkpoints() == []


@pytest.mark.parametrize("ranks,only", [(2, 1), *later((1, None))])
def test_a_start_that_is_nearly_through_ends_in_order(binary, tmp_path, ranks, only):
    job = Job(binary, tmp_path, ranks, delay("load", 0.5))
    job.in_phase("load")
    job.send(signal.SIGTERM, only)
    code, _ = job.end()
    assert code == INTERRUPTED and job.checkpoints() == []
    assert "ends before the first step" in (job.dir / "log.txt").read_text()


@pytest.mark.parametrize("ranks,number,only,phase,step", [
    (2, signal.SIGUSR1, 1, "gradients", 1),
    pytest.param(1, signal.SIGTERM, None, "gradients", 1, marks=pytest.mark.soak),
    pytest.param(2, signal.SIGTERM, None, "update", 1, marks=pytest.mark.soak),
    pytest.param(1, signal.SIGUSR2, None, "update", 1, marks=pytest.mark.soak),
])
def test_in_a_step_that_step_is_saved(binary, tmp_path, ranks, number, only, phase, step):
    job = Job(binary, tmp_path, ranks, delay(phase, 1))
    job.in_phase(phase)
    job.send(number, only)
    code, seconds = job.end()
    assert code == INTERRUPTED and seconds < 20
    assert job.checkpoints() == [step]
    assert [e["signal"] for e in job.events("signal")] == [signal.Signals(number).name]
    assert job.events("end")[0]["step"] == step


@pytest.mark.parametrize("ranks,only", [(2, 1), *later((1, None))])
def test_a_validation_ends_between_its_batches(binary, store, tmp_path, ranks, only):
    # The validation has some 100 batches, so that it takes 20 s.
    job = Job(binary, tmp_path, ranks, delay("validation batch", 0.2), "validation.batches=0",
              f'data.validation=[{{name = "held", path = "{store}"}}]',
              f"model.override={{vocab_size = {layouts.MODEL['vocab_size']}}}")
    job.in_phase("validation")  # that of step 0
    job.send(signal.SIGTERM, only)
    code, seconds = job.end()
    assert code == INTERRUPTED and seconds < 5
    assert job.checkpoints() == []  # nothing new
    assert "stopped by SIGTERM after step 0; nothing was trained" in job.log()
    assert not [line for line in (job.dir / "metrics.jsonl").read_text().splitlines()
                if "validation" in line]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_during_a_save_that_save_is_the_last(binary, tmp_path, ranks):
    job = Job(binary, tmp_path, ranks, "checkpoint.every=4", "checkpoint.async=false",
              delay("checkpoint", 1))
    job.in_phase("checkpoint")
    job.send(signal.SIGINT)
    code, _ = job.end()
    assert code == INTERRUPTED
    assert job.checkpoints() == [4] and max(steps_of(job.dir)) == 4


@pytest.mark.parametrize("number,slow", [(signal.SIGTERM, True), (signal.SIGINT, False),
                                         *later((signal.SIGTERM, False))])
def test_a_signal_to_mpirun_saves_if_there_is_time_and_says_which(binary, run, tmp_path, number,
                                                                  slow):
    def saved():
        return re.search(r"^stopped by SIGTERM after step (\d+); saved", job.log(), re.M)

    if slow:  # no machine saves within the second that mpirun leaves
        run("longhaul", "train", write_config(tmp_path), *sets(*LONG, "run.stop_after=3"))
    for _ in range(3):  # on a busy machine mpirun may kill them before they can say a word
        if not slow:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
        job = Job(binary, tmp_path, 2, *([delay("gradients", 5)] if slow else []))
        if slow:
            job.in_phase("gradients")
        else:
            job.at_step(5)
        job.process.send_signal(number)
        job.end()
        if saved() or "longhaul: error: " in job.errors:
            break
    said = job.errors + job.log()
    assert "another rank" not in said, said
    if found := saved():
        assert not slow and job.checkpoints() == [int(found[1])]
        return
    ours = [line for line in job.errors.splitlines() if line.startswith("longhaul: error: ")]
    assert len(ours) == 1 and "[signal] SIGTERM of mpirun" in ours[0], job.errors
    assert ours[0].removeprefix("longhaul: ") in job.log()
    assert re.search("newest checkpoint step 3$" if slow else
                     r"there is no checkpoint|newest checkpoint step \d", ours[0])


def test_a_second_interrupt_says_what_it_leaves_behind(binary, run, tmp_path):
    run("longhaul", "train", write_config(tmp_path), *sets(*LONG, "run.stop_after=3"))
    job = Job(binary, tmp_path, 1, delay("checkpoint", 100))
    job.at_step(5)
    job.send(signal.SIGINT)
    job.in_phase("checkpoint")
    job.send(signal.SIGINT)
    code, seconds = job.end()
    assert code == 130 and seconds < 20
    last = max(steps_of(job.dir))
    assert job.errors.splitlines()[-1] == ("longhaul: ended at once: newest checkpoint step 3; "
                                           f"steps 4 to {last} will be trained again")
    assert job.checkpoints() == [3]


def test_a_dead_rank_does_not_hold_the_signal_up(binary, tmp_path):
    job = Job(binary, tmp_path, 2, "resilience.signal_timeout_s=2")
    job.at_step(3)
    pids = rank_pids(job.process.pid)
    os.kill(pids[1], signal.SIGSTOP)  # dead, but mpirun does not know
    time.sleep(0.2)
    os.kill(pids[0], signal.SIGTERM)
    code, seconds = job.end()
    assert code == INTERRUPTED and seconds < 30, job.errors
    assert "did not end within 2.0 s" in job.errors


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_stop_saves_and_ends_once(binary, tmp_path, ranks):
    job = Job(binary, tmp_path, ranks)
    job.at_step(2)
    (job.dir / "STOP").touch()
    code, _ = job.end()
    assert code == STOPPED
    last = max(steps_of(job.dir))
    assert job.checkpoints() == [last]
    assert f"stopped by the file STOP after step {last}; saved" in job.log()
    assert not (job.dir / "STOP").exists()
    assert job.events("signal") == [{**job.events("signal")[0], "file": "STOP", "step": last}]
    again = Job(binary, tmp_path, ranks)  # goes on
    again.at_step(last + 2)
    again.send(signal.SIGTERM)
    assert again.end()[0] == INTERRUPTED


def test_save_makes_one_checkpoint_now(binary, tmp_path):
    job = Job(binary, tmp_path, 2)
    job.at_step(2)
    (job.dir / "SAVE").touch()
    job.until(lambda: len(job.checkpoints()) == 1, "a checkpoint")
    (saved,) = job.checkpoints()
    job.at_step(saved + 20)
    assert job.checkpoints() == [saved] and not (job.dir / "SAVE").exists()
    job.send(signal.SIGTERM)
    assert job.end()[0] == INTERRUPTED


def test_pause_holds_longer_than_the_deadline_and_signals_still_work(binary, tmp_path):
    job = Job(binary, tmp_path, 2, "resilience.comm_timeout_s=2")
    job.at_step(2)
    (job.dir / "PAUSE").touch()
    job.in_phase("paused")
    held = max(steps_of(job.dir))
    time.sleep(4)
    assert max(steps_of(job.dir)) == held
    (job.dir / "PAUSE").unlink()
    job.at_step(held + 3)
    (job.dir / "PAUSE").touch()
    job.in_phase("paused")
    job.send(signal.SIGUSR1)
    assert job.end()[0] == INTERRUPTED
    assert job.checkpoints() == [max(steps_of(job.dir))]
    assert [e["step"] for e in job.events("resumed")] == [held, max(steps_of(job.dir))]


def test_stops_and_pauses_change_no_number(binary, run, tmp_path):
    job = Job(binary, tmp_path, 2)
    job.at_step(2)
    (job.dir / "PAUSE").touch()
    job.in_phase("paused")
    job.send(signal.SIGTERM)
    job.end()
    reached = max(steps_of(job.dir))
    (job.dir / "PAUSE").unlink()
    run("longhaul", "train", tmp_path / "run.toml", *sets(*LONG, f"run.stop_after={reached + 3}"),
        ranks=2)
    whole = write_config(tmp_path, "whole")
    run("longhaul", "train", whole, *sets(*LONG, f"run.stop_after={reached + 3}"), ranks=2)
    assert curve(job.dir) == curve(tmp_path / "whole")


def test_ps_shows_rank_place_and_step(binary, tmp_path):
    job = Job(binary, tmp_path, 2, "parallel.tp=2")
    job.at_step(3)
    for rank, pid in rank_pids(job.process.pid).items():
        title = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
        words, _, step = title.rpartition(" ")
        assert words == f"longhaul rank {rank} pp0 dp0 tp{rank} step" and int(step) >= 3, title
    job.send(signal.SIGTERM)
    assert job.end()[0] == INTERRUPTED
