"""A run ends by its date or within its budget, and what was decided for it outlives a kill and a
jump of the clock."""

import json
import os
import subprocess
import time

import pytest
from programs import BIN
from runs import PACE, curve, final, state, steps_of, tensors, write_config

WSD = ["schedule.kind=wsd", "schedule.min_lr=1e-4"]
ENDLESS = [*WSD, "run.steps=100000", "schedule.decay_steps=100", "checkpoint.every=100000", PACE]


def words(*sets):
    return [word for one in sets for word in ("--set", one)]


IN_AN_HOUR = int(time.time()) + 3600


def until(seconds):
    return "run.until=" + time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def events(run_dir, kind):
    path = run_dir / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == kind]


class Clock:
    """The wall clock of the runs of a test."""

    def __init__(self, folder):
        self.shift = folder / "shift"
        self.set(0)
        self.environment = dict(os.environ, LONGHAUL_CLOCK_SHIFT=str(self.shift),
                                LD_PRELOAD=str(BIN / "liblonghaul_clock_shift.so"))

    def set(self, seconds):
        fresh = self.shift.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.rename(self.shift)


def wait_until(holds, process):
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.02)


def test_the_decision_outlives_a_kill_and_a_clock_that_jumps_back(tmp_path):
    path, run_dir, clock = write_config(tmp_path), tmp_path / "run", Clock(tmp_path)
    command = [BIN / "longhaul", "train", path, *words(*ENDLESS, until(IN_AN_HOUR))]
    with subprocess.Popen(list(map(str, command)), env=clock.environment,
                          stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: (run_dir / "metrics.jsonl").exists() and len(steps_of(run_dir)) > 30,
                       process)
            assert not events(run_dir, "end_decided")
            clock.set(IN_AN_HOUR - int(time.time()) - 8)  # the date is in 8 seconds
            wait_until(lambda: events(run_dir, "checkpoint"), process)
        finally:  # also where the test fails: the run ends by itself only in an hour
            process.kill()
    [decided] = events(run_dir, "end_decided")
    begin, end = decided["decay_after"], decided["last_step"]
    assert decided["step"] == begin and 0 < end - begin <= 100 and decided["world"] == 1
    [saved] = events(run_dir, "checkpoint")
    assert saved["step"] == begin  # a save follows the decision
    clock.set(0)
    done = subprocess.run(list(map(str, command)), env=clock.environment, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"the decay begins after step {begin} and the run ends with step {end}" in done.stdout
    assert len(events(run_dir, "end_decided")) == 1
    assert events(run_dir, "start")[-1]["last_step"] == end
    rates = {step: record["lr"] for step, record in steps_of(run_dir).items()}
    assert max(rates) == end
    for step, rate in rates.items():
        share = max(0.0, step - 1 - begin) / (end - begin)
        if step > 3:  # behind the warm-up
            assert rate == pytest.approx(1e-4 + (3e-3 - 1e-4) * (1 - share))
    again = subprocess.run(list(map(str, command)), env=clock.environment, text=True,
                           capture_output=True, timeout=60)
    assert "nothing to do" in again.stdout and 'continue = "rewarm"' in again.stdout


def test_a_budget_counts_what_earlier_starts_have_cost(run, tmp_path):
    path, run_dir = write_config(tmp_path), tmp_path / "run"
    sets = [*ENDLESS, "run.budget=5", "run.price_per_node_hour=3600"]  # a second costs 1
    run("longhaul", "train", path, *words(*sets, "run.stop_after=20"))
    if not events(run_dir, "end_decided"):
        run("longhaul", "train", path, *words(*sets))
    begun = [event["time"] - event["seconds"] for event in events(run_dir, "start")]
    ended = [event["time"] for event in events(run_dir, "end")]
    [decided] = events(run_dir, "end_decided")
    spent = [min(end, decided["time"]) - begin for begin, end in zip(begun, ended)]
    assert sum(spent) + decided["seconds_left"] == pytest.approx(5, abs=0.5)
    assert events(run_dir, "end")[-1]["step"] == decided["last_step"] < 1000
    assert all(event["nodes"] == 1 for event in events(run_dir, "start"))
    told = run("longhaul", "why", run_dir, "--step", decided["last_step"], "--loss", "--json", "--out",
               tmp_path / "again").stdout
    assert json.loads(told)["replay"]["same"]


def test_a_date_that_does_not_bind_changes_no_bit(run, tmp_path):
    for name, sets in (("dated", [until(IN_AN_HOUR)]), ("plain", [])):
        run("longhaul", "train", write_config(tmp_path, name), *words(*WSD, *sets))
    dated, plain = tmp_path / "dated", tmp_path / "plain"
    assert curve(dated) == curve(plain)
    assert tensors(final(dated)) == tensors(final(plain))
    assert state(final(dated)) == state(final(plain))
    assert not events(dated, "end_decided")


def test_a_date_that_is_past_is_refused_before_training_and_by_plan(run, tmp_path):
    path = write_config(tmp_path)
    past = [*WSD, "run.until=2026-01-01"]
    for verb in (["train", path], ["config", path, "--ranks", "1"]):
        refused = run("longhaul", *verb, *words(*past), check=False)
        assert refused.returncode == 78, refused.stdout
        assert "run.until = 2026-01-01T00:00:00Z is past" in refused.stderr
    assert not steps_of(tmp_path / "run")


def test_a_budget_that_earlier_starts_have_spent_is_refused_before_training(run, tmp_path):
    path, run_dir = write_config(tmp_path), tmp_path / "run"
    run("longhaul", "train", path, *words(*WSD, "run.stop_after=3"))
    sets = [*WSD, "run.budget=0.001", "run.price_per_node_hour=3600"]
    refused = run("longhaul", "train", path, *words(*sets), check=False)
    assert refused.returncode == 78, refused.stdout
    assert "run.budget = 0.001 is spent" in refused.stderr
    assert max(steps_of(run_dir)) == 3
