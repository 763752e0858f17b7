"""A run goes on from a checkpoint with another schedule only if a setting says which schedule it
is."""

import json

import pytest
from runs import curve, final, state, steps_of, tensors, write_config

SMALL = ["schedule.min_lr=1e-4"]  # cosine from 3e-3 over 8 steps, 2 of them warm-up
REWARM = ["run.steps=14", "schedule.continue=rewarm", "schedule.continue_fraction=0.5"]


def train(run, path, *sets, check=True):
    return run("longhaul", "train", path, *[w for s in [*SMALL, *sets] for w in ("--set", s)],
               check=check)


def rates(run_dir):
    return {step: record["lr"] for step, record in steps_of(run_dir).items()}


def test_a_changed_schedule_is_refused_with_its_keys_and_the_three_words(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4")
    refused = train(run, path, "schedule.min_lr=2e-4", "schedule.warmup_steps=1", check=False)
    assert refused.returncode == 78
    for word in ("schedule.min_lr was 0.0001, is 0.0002", "schedule.warmup_steps was 2, is 1",
                 '"keep"', '"rewarm"', '"decay"', "step 4"):
        assert word in refused.stderr, refused.stderr
    longer = train(run, path, "run.steps=16", check=False)
    assert longer.returncode == 78 and "were 8 and are now 16 (run.steps)" in longer.stderr
    assert max(steps_of(tmp_path / "run")) == 4  # nothing was trained


def test_a_longer_run_goes_on_where_no_rate_depends_on_its_length(run, tmp_path):
    for i, (sets, last) in enumerate(((["schedule.kind=constant", "schedule.min_lr=0"], 3e-3),
                                      (["schedule.horizon=8"], 1e-4),
                                      (["schedule.kind=wsd", "schedule.decay_steps=1"], 3e-3))):
        path = write_config(tmp_path, f"run_{i}")
        train(run, path, *sets, "run.stop_after=5")
        train(run, path, *sets, "run.steps=10")
        found = rates(tmp_path / f"run_{i}")
        assert found[9] == last and max(found) == 10


def test_keep_follows_the_checkpoint_and_is_kept_by_later_starts(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4")
    plain = write_config(tmp_path, "plain")
    train(run, plain)
    kept = ["schedule.continue=keep", "schedule.kind=constant", "schedule.min_lr=0", "run.steps=12",
            "optimizer.lr=1e-2"]
    train(run, path, *kept, "run.stop_after=6")
    said = train(run, path, *kept).stdout
    assert "schedule: the checkpoint's schedule is kept" in said
    ours, theirs = rates(tmp_path / "run"), rates(tmp_path / "plain")
    assert {s: ours[s] for s in theirs} == theirs
    assert ours[9] == ours[12] == 1e-4


@pytest.mark.parametrize("word", ["rewarm", "decay"])
def test_a_run_that_went_on_resumes_bitwise(run, tmp_path, word):
    first = write_config(tmp_path, "first")
    train(run, first, "run.stop_after=4")
    source = json.dumps(str(final(tmp_path / "first").parent / "step_00000004"))
    sets = [f"checkpoint.resume={source}", "run.steps=10", f"schedule.continue={word}"]
    whole, parts = write_config(tmp_path, "whole"), write_config(tmp_path, "parts")
    said = train(run, whole, *sets).stdout
    assert f"schedule: {word} after step 4: from " in said and "learning rate " in said
    train(run, parts, *sets, "run.stop_after=7", "checkpoint.every=1")
    train(run, parts, sets[1], sets[2], "checkpoint.every=1")
    assert min(steps_of(tmp_path / "parts")) == 5
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    last = "checkpoints/step_00000010"
    assert tensors(tmp_path / "parts" / last) == tensors(tmp_path / "whole" / last)
    ends = [state(tmp_path / name / last)["schedule"] for name in ("parts", "whole")]
    assert ends[0] == ends[1] and ends[0]["from"]["step"] == 4


def test_config_and_log_print_the_rates_that_are_trained_with(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path)
    words = [w for s in [*SMALL, *REWARM] for w in ("--set", s)]
    printed = json.loads(run("longhaul", "config", path, "--json", *words).stdout)
    text = run("longhaul", "config", path, *words).stdout
    assert "# learning rate, rewarm after step 8: from 0.0001 to 0.0015 over 2 steps" in text
    train(run, path, *REWARM)
    trained = rates(tmp_path / "run")
    points = {p["step"]: p["lr"] for p in printed["learning_rates"]}
    assert points == {step: trained[step] for step in points} and {9, 11, 14} <= set(points)
    assert trained[11] == 1.5e-3  # the new peak
    assert trained[9] == pytest.approx(1e-4 + 1.4e-3 / 3)
    assert trained[12] < trained[11]


def test_there_must_be_a_checkpoint_to_continue(run, tmp_path):
    path = write_config(tmp_path)
    refused = train(run, path, "schedule.continue=keep", check=False)
    assert refused.returncode == 78 and "starts without a checkpoint" in refused.stderr
    words = ["--set", "schedule.continue=keep"]
    assert "and no checkpoint was found" in run("longhaul", "config", path, *words).stdout
