"""Steps whose loss or gradient is a spike or not finite: the run stops, skips them or rolls
back."""

import json
import subprocess
import time

import pytest
from runs import curve, state, steps_of, tensors, write_config
from test_resume import train

STEPS = 12
FP32 = ['precision.compute="fp32"', f"run.steps={STEPS}", "schedule.warmup_steps=2"]
SKIP = [*FP32, 'resilience.on_bad_step="skip"']


def fault(step, kind, rank=0):
    return f'debug.faults=[{{step = {step}, kind = "{kind}", rank = {rank}}}]'


def rollback(steps, every=2):
    return [*FP32, 'resilience.on_bad_step="rollback"', f"resilience.rollback_steps={steps}",
            f"checkpoint.every={every}"]


def checkpoint(run_dir, step=STEPS):
    return run_dir / "checkpoints" / f"step_{step:08}"


def saved_state(run_dir, step=STEPS):
    return json.loads(next(checkpoint(run_dir, step).glob("*state.json")).read_text())


def events(run_dir, name):
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == name]


def same(one, other, step=STEPS):
    """Expects two runs to have the same curves, the same bits of the state, and the same place in
    the data."""
    assert curve(one) == curve(other)
    assert tensors(checkpoint(one, step)) == tensors(checkpoint(other, step))
    assert state(checkpoint(one, step)) == state(checkpoint(other, step))
    assert saved_state(one, step)["guard"] == saved_state(other, step)["guard"]


def test_a_bad_step_ends_the_run_unless_it_is_told_otherwise(run, tmp_path):
    result = train(run, write_config(tmp_path), *FP32, fault(5, "nonfinite_loss"), check=False)
    assert result.returncode == 1
    assert "[numerics] step 5: loss nan and gradient norm" in result.stderr
    assert "resilience.on_bad_step can skip such steps" in result.stderr
    assert "FAULTS ARE MADE ON PURPOSE" in result.stdout + result.stderr
    assert events(tmp_path / "run", "bad_step")[0]["action"] == "stop"
    assert max(steps_of(tmp_path / "run")) == 5


@pytest.mark.parametrize("kind,more", [
    ("nonfinite_gradient", []),
    ("spike", ["resilience.spike_sigmas=6", "resilience.spike_window=8"]),
])
def test_a_skipped_step_changes_nothing_but_the_place_in_the_data(run, tmp_path, kind, more):
    train(run, write_config(tmp_path), *SKIP, "checkpoint.every=1", fault(7, kind), *more)
    run_dir = tmp_path / "run"
    before, after = saved_state(run_dir, 6), saved_state(run_dir, 7)
    assert tensors(checkpoint(run_dir, 6)) == tensors(checkpoint(run_dir, 7))
    assert tensors(checkpoint(run_dir, 7)) != tensors(checkpoint(run_dir, 8))
    assert (after["updates"], saved_state(run_dir)["updates"]) == (6, STEPS - 1)
    assert after["cursor"]["phases"][0]["consumed"] == 7 * 8
    assert after["guard"] == {**before["guard"], "bad_steps": [7]}
    applied = [step for step, r in steps_of(run_dir).items() if r.get("applied", True)]
    assert applied == [s for s in range(1, STEPS + 1) if s != 7]
    bad = events(run_dir, "bad_step")
    assert [(e["step"], e["kind"], e["action"]) for e in bad] == [
        (7, "spike" if kind == "spike" else "nonfinite", "skip")]


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_stopping_and_going_on_changes_nothing_about_skips_and_rollbacks(run, tmp_path, ranks):
    sets = [*rollback(3), "resilience.spike_sigmas=6", "resilience.spike_window=8",
            'debug.faults=[{step = 7, kind = "spike"}, {step = 9, kind = "nonfinite_loss"}]']
    train(run, write_config(tmp_path, "whole"), *sets, ranks=ranks)
    for stop in (6, 8, 11):
        train(run, write_config(tmp_path, "parts"), *sets, f"run.stop_after={stop}", ranks=ranks)
    train(run, write_config(tmp_path, "parts"), *sets, ranks=ranks)
    same(tmp_path / "whole", tmp_path / "parts")
    whole = saved_state(tmp_path / "whole")
    assert whole["updates"] == STEPS and whole["guard"]["rollbacks"] == 2
    # Skipped are the batches 5 to 7, and then 4, 8 and 9, which steps 4 to 6 had.
    assert whole["cursor"]["phases"][0]["skipped"] == [[24, 72]]
    assert whole["cursor"]["phases"][0]["consumed"] == STEPS * 8


def test_a_rollback_goes_where_the_checkpoints_lie_and_ends_the_same(run, tmp_path):
    ends = []
    for every in (1, 2, 5):  # the last: there is none to go back to but the begin
        path = write_config(tmp_path, f"every{every}")
        train(run, path, *rollback(2, every), fault(5, "nonfinite_loss"))
        ends.append(tmp_path / f"every{every}")
        (event,) = events(ends[-1], "rollback")
        assert (event["from_step"], event["to_step"]) == (5, {1: 3, 2: 2, 5: 0}[every])
        assert (event["skipped_from"], event["skipped_to"]) == (4, 5)
    for end in ends[1:]:
        same(ends[0], end)
    aside = sorted(p.name for p in (ends[0] / "checkpoints").glob("*superseded"))
    assert aside == ["step_00000004.superseded"]


def test_what_is_left_out_is_left_out_and_nothing_else_moves(run, tmp_path):
    """The run that was rolled back goes on like one whose data never had the guilty batches."""
    rolled, plain = write_config(tmp_path, "rolled"), write_config(tmp_path, "plain")
    train(run, rolled, *rollback(2), fault(5, "nonfinite_loss"))
    train(run, plain, *FP32)
    one, other = curve(tmp_path / "rolled"), curve(tmp_path / "plain")
    assert one[:3] == other[:3]
    assert all(a != b for a, b in zip(one[3:], other[3:]))
    assert [lr for _, _, lr in one] == [lr for _, _, lr in other]  # by steps


def test_a_kill_in_the_middle_of_a_rollback_changes_nothing(run, binary, tmp_path):
    sets = [*rollback(2), fault(7, "nonfinite_loss")]
    whole, parts = write_config(tmp_path, "whole"), write_config(tmp_path, "parts")
    train(run, whole, *sets)
    delayed = [*sets, 'debug.delays=[{phase = "rollback", seconds = 60}]']
    process = subprocess.Popen(
        [binary("longhaul"), "train", str(parts), *[w for s in delayed for w in ("--set", s)]],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if (tmp_path / "parts/events.jsonl").exists() and events(tmp_path / "parts", "bad_step"):
            break
        time.sleep(0.05)
    process.kill()
    process.wait(timeout=60)
    assert not events(tmp_path / "parts", "rollback")
    train(run, parts, *sets)
    same(tmp_path / "whole", tmp_path / "parts")


def test_too_many_bad_steps_end_the_run_with_a_report(run, tmp_path):
    faults = ", ".join(f'{{step = {s}, kind = "nonfinite_loss"}}' for s in (3, 4, 6))
    result = train(run, write_config(tmp_path), *SKIP, "resilience.max_bad_steps=2",
                   f"debug.faults=[{faults}]", check=False)
    assert result.returncode == 1
    assert ("the bad steps are 3, 4, 6, which is more than resilience.max_bad_steps = 2 within the last 128 steps"
            in result.stderr)
    assert [e["action"] for e in events(tmp_path / "run", "bad_step")] == ["skip", "skip", "stop"]


@pytest.mark.parametrize("sets,words", [
    (["checkpoint.keep=2", "checkpoint.every=50", "resilience.rollback_steps=52"],
     "resilience.rollback_steps = 52 reaches past the checkpoints"),
    (["checkpoint.keep=2", "checkpoint.every=50", "checkpoint.every_minutes=1",
      "resilience.rollback_steps=3"], "beside saves by the clock (checkpoint.every_minutes) are sure "
     "to hold only the last 2"),
    (["checkpoint.every=0"], "needs checkpoints to go back to"),
    (["resilience.spike_window=3"], "resilience.spike_window"),
])
def test_settings_that_cannot_work_are_refused(run, tmp_path, sets, words):
    result = train(run, write_config(tmp_path), 'resilience.on_bad_step="rollback"', *sets,
                   check=False)
    assert result.returncode == 78 and words in result.stderr, result.stderr
