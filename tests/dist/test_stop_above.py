"""A run that forgets an old domain is stopped by the bound of its validation."""

import json

import pytest
from layouts import FP32, step_dir, train, write_run
from runs import curve

STEPS = 8
KEPT = ["checkpoint.every=0", "validation.every=2", "validation.batches=2", f"run.steps={STEPS}"]


@pytest.fixture(scope="module")
def config(trained, store, tmp_path_factory):
    """A run file that goes on from a model of the store's words, with sequences that have no order
    at all."""
    learned = trained((1, []), *FP32, "run.steps=8")

    def write():
        path = write_run(tmp_path_factory.mktemp("forgets"), store)
        text = path.read_text().replace(f'path = "{store}"', "synthetic = 200")
        path.write_text(text + f'[init]\nweights = "{learned}"\n')
        return path

    return write


def old_domain(store, bound=None):
    rule = "" if bound is None else f", stop_above={bound}"
    return f'data.validation=[{{name="old", path="{store}"{rule}}}]'


def validations(run_dir):
    """The validation losses by step."""
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if "validation" in line}


def events(run_dir, kind):
    lines = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == kind]


@pytest.fixture(scope="module")
def unbounded(run, config, store):
    path = config()
    train(run, path, *FP32, *KEPT, old_domain(store))
    return path.parent / "run"


@pytest.fixture(scope="module")
def bound(unbounded):
    """A bound between the rises of the loss at step 2 and at step 4, where the run is to end."""
    losses = validations(unbounded)
    first, second = losses[2] - losses[0], losses[4] - losses[0]
    assert first < 0.9 * second
    return round((first + second) / 2, 6)


def test_a_run_is_saved_and_stopped_where_its_bound_is_passed(run, config, store, unbounded, bound):
    path = config()
    directory = path.parent / "run"
    # The rise is counted from step 0, also where another start reads on.
    train(run, path, *FP32, *KEPT, old_domain(store, bound), "run.stop_after=1")
    done = train(run, path, *FP32, *KEPT, old_domain(store, bound), check=False)
    assert done.returncode == 79
    losses = validations(directory)
    assert losses == {step: loss for step, loss in validations(unbounded).items() if step <= 4} \
        | {1: losses[1]}
    assert step_dir(directory, 4).is_dir()
    rise = f"is {losses[4] - losses[0]:.5f} above its {losses[0]:.5f} at step 0"
    log = (directory / "log.txt").read_text()
    for text in (done.stdout, log):
        assert rise in text and f"stop_above = {bound:g} of data.validation" in text
        assert "stopped by stop_above of data.validation after step 4; saved" in text
    [told] = events(directory, "validation_rose")
    assert (told["step"], told["validation"], told["loss"]) == (4, "old", losses[4])
    assert events(directory, "end")[-1]["stopped_by"] == "stop_above of data.validation"
    assert run("longhaul", "watch", directory, "--until-end", check=False).returncode == 79

    # The same command changes nothing. With a looser bound the run goes on as if it had not
    # stopped.
    steps = len(curve(directory))
    again = train(run, path, *FP32, *KEPT, old_domain(store, bound), check=False)
    assert again.returncode == 79 and rise in again.stdout
    assert len(curve(directory)) == steps == 4
    train(run, path, *FP32, *KEPT, old_domain(store, 100.0))
    assert curve(directory) == curve(unbounded)


def test_a_supervisor_does_not_start_it_again(run, config, store, bound):
    path = config()
    sets = [*FP32, *KEPT, old_domain(store, bound)]
    done = run("longhaul", "launch", "-n", 2, path, *[w for s in sets for w in ("--set", s)],
               check=False, env={"OMPI_ALLOW_RUN_AS_ROOT": "1",
                                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    assert done.returncode == 79
    directory = path.parent / "run"
    assert max(validations(directory)) == 4 and len(events(directory, "start")) == 1
    assert json.loads((directory / "status.json").read_text())["state"] == "stopped"


def test_a_run_that_is_done_is_done(run, config, store, bound):
    path = config()
    done = train(run, path, *FP32, *KEPT, old_domain(store, bound), "run.stop_after=4")
    assert "above its" in done.stdout and "finished step 4" in done.stdout


@pytest.mark.parametrize("rule,words", [
    ("-0.1", ["data.validation[0].stop_above", "-0.1"]),
    ('"much"', ["data.validation[0].stop_above", "a number"])])
def test_a_bound_that_is_none_is_refused(run, config, store, rule, words):
    done = train(run, config(), old_domain(store, rule), check=False)
    assert done.returncode == 78
    for word in words:
        assert word in done.stderr


def test_a_bound_that_nothing_looks_at_is_a_warning(run, config, store):
    path = config()
    told = run("longhaul", "config", path, "--set", old_domain(store, 0.5), "--set",
               "validation.every=0").stderr
    assert 'data.validation "old": stop_above stops nothing before the end' in told
