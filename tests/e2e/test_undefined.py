"""No program prints a number for what has no value, such as a mean loss over nothing, or the loss
of a batch without targets."""

import json
import pathlib
import sys

import pytest
from datasets import Dataset
from refusals import refused, training_refused

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import steps_of  # noqa: E402

LENGTH = 64
ROWS = 64


def rows_of(directory, without):
    """Rows of which those whose number is in `without` have no target."""
    labels = [[-100] * LENGTH if row in without else [2] * LENGTH for row in range(ROWS)]
    Dataset.from_dict({"input_ids": [[2] * LENGTH] * ROWS, "labels": labels}).save_to_disk(directory)


@pytest.fixture
def ignored(root):
    rows_of(root / "ignored", range(ROWS))
    return root


@pytest.mark.parametrize("more", [[], ["--json"], ["--max-sequences", "3"]])
def test_the_loss_of_data_without_targets_is_an_error_with_its_name(run, ignored, more):
    result = run("longhaul", "eval", "models/small", "--data", "ignored", "--seq-len", LENGTH,
                 *more, check=False, cwd=ignored)
    refused(result, "ignored", "none has a target for next_token")
    assert result.stdout == ""


def test_a_validation_without_targets_is_refused_before_the_first_step(run, ignored):
    training_refused(run, ignored, ['data.validation=[{name="odd", path="ignored"}]'],
                     "data.validation odd", "none has a target for next_token")


def test_a_training_without_targets_names_step_and_term(run, ignored):
    refused(run("longhaul", "train", "run.toml", "--set", 'data.train=[{path="ignored"}]',
                check=False, cwd=ignored),
            "step 1: the batch has no target at all for next_token", "on_bad_step")


def test_a_batch_without_targets_is_skipped_where_bad_steps_are(run, root):
    # A batch takes 16 rows in their order, so the second batch has no target.
    rows_of(root / "some", range(16, 32))
    run("longhaul", "train", "run.toml", "--set", 'data.train=[{path="some"}]', "--set",
        "data.shuffle=false", "--set", "run.steps=3", "--set", "run.dir=runs/mine", "--set",
        'resilience.on_bad_step="skip"', cwd=root)
    steps = steps_of(root / "runs/mine")
    assert sorted(steps) == [1, 2, 3]
    assert steps[2]["loss"] is None and steps[2]["applied"] is False
    assert steps[1]["loss"] > 0 and steps[3]["loss"] > 0
    (event,) = [e for e in map(json.loads, (root / "runs/mine/events.jsonl").open())
                if e["event"] == "bad_step"]
    assert event["kind"] == "no_targets" and "next_token" in event["why"]
    for verb in (["report", "runs/mine", "--json"], ["watch", "runs/mine", "--once", "--json"]):
        view = json.loads(run("longhaul", *verb, cwd=root).stdout, parse_constant=pytest.fail)
        assert view


def test_a_run_without_a_step_has_no_goodput(run, root):
    (root / "runs/mine").mkdir(parents=True)
    (root / "runs/mine/events.jsonl").write_text("")
    (root / "runs/mine/metrics.jsonl").write_text("")
    view = json.loads(run("longhaul", "watch", "runs/mine", "--once", "--json", cwd=root).stdout)
    assert view["ledger"]["goodput"] is None
