"""A run whose wall clock jumps by hours, ahead and back: no duration of the run is measured by that
clock."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "resume")]
import programs  # noqa: E402
import runs  # noqa: E402

HOURS = 4 * 3600


class Run:
    """A supervised run of one rank whose wall clock the test sets."""

    def __init__(self, folder):
        self.config, self.dir = runs.write_config(folder), folder / "run"
        self.shift = folder / "shift"
        self.set_clock(0)
        self.environment = dict(os.environ, LONGHAUL_CLOCK_SHIFT=str(self.shift), LD_PRELOAD=str(
            programs.BIN / "liblonghaul_clock_shift.so"))

    def set_clock(self, seconds):
        fresh = self.shift.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.rename(self.shift)

    def start(self, *verb, steps=100000):
        words = [programs.BIN / "longhaul", *verb, self.config]
        for value in (f"run.steps={steps}", "checkpoint.every=5", "resilience.hang_timeout_s=20",
                      'debug.delays=[{phase = "gradients", seconds = 0.03}]'):
            words += ["--set", value]
        self.process = subprocess.Popen(list(map(str, words)), env=self.environment, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def done(self):
        path = self.dir / "metrics.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def more_steps(self, count):
        wanted, limit = self.done() + count, time.monotonic() + 60
        while self.done() < wanted:
            assert time.monotonic() < limit and self.process.poll() is None
            time.sleep(0.02)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 75, said
        return said

    def kill_rank(self):
        status = json.loads((self.dir / "status.json").read_text())
        os.kill(status["ranks"][0]["pid"], signal.SIGKILL)

    def events(self, name):
        lines = (self.dir / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def ledger(self):
        done = subprocess.run([str(programs.BIN / "longhaul"), "report", str(self.dir), "--json"],
                              env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["ledger"]

    def metric(self, name):
        results = json.loads((self.dir / "results.json").read_text())["results"]["metrics"]
        return next(metric["MeasuredValue"] for metric in results if metric["MetricName"] == name)


@pytest.mark.parametrize("jump", [HOURS, -HOURS], ids=["ahead", "back"])
def test_a_jump_under_a_supervised_run_is_said_and_costs_no_second(tmp_path, jump):
    run, begun = Run(tmp_path), time.monotonic()
    run.start("launch", "-n", "1")
    run.more_steps(10)
    run.set_clock(jump)
    run.more_steps(40)  # the supervisor looks once a second
    run.kill_rank()  # its successor begins with the wrong clock
    run.more_steps(20)
    said = run.stop()
    seconds = time.monotonic() - begun
    assert f"has jumped {'ahead' if jump > 0 else 'back'} by 14400.0 s" in said
    jumps = run.events("clock_jump")
    # The supervisor reports the jump, and so do the rank and its successor when it begins.
    assert len(jumps) == 3 and all(abs(one["seconds"] - jump) < 1 for one in jumps)
    assert not run.events("hang") and len(run.events("fault")) == 1
    [restart] = run.events("restart")
    assert 0 < restart["seconds_down"] < 15
    ledger = run.ledger()
    assert abs(ledger["seconds"] - seconds) < 2, (ledger, seconds)
    assert abs(sum(ledger["by_class"].values()) - ledger["seconds"]) < 1e-6
    assert run.metric("Time to train") * 60 == pytest.approx(ledger["seconds"], abs=1e-3)


@pytest.mark.parametrize("jump", [HOURS, -HOURS], ids=["ahead", "back"])
@pytest.mark.parametrize("verb", [["train"], ["launch", "-n", "1"]], ids=["train", "launch"])
def test_a_jump_between_two_starts_costs_no_second(tmp_path, jump, verb):
    run, begun = Run(tmp_path), time.monotonic()
    run.start(*verb)
    run.more_steps(10)
    run.stop()
    run.set_clock(jump)
    run.start(*verb)
    run.more_steps(10)
    watched = json.loads(subprocess.run(
        [str(programs.BIN / "longhaul"), "watch", str(run.dir), "--once", "--json"],
        env=run.environment, capture_output=True, text=True, timeout=60).stdout)
    assert watched["alive"] and watched["seconds_since_step"] < 5
    assert abs(watched["ledger"]["seconds"] - (time.monotonic() - begun)) < 3
    run.stop()
    ledger = run.ledger()
    assert abs(ledger["seconds"] - (time.monotonic() - begun)) < 3, ledger
    assert ledger["steps"] + ledger["steps_redone"] == run.done()
    assert ledger["by_class"]["compute"] > 20 * 0.03
