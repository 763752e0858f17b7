"""run.expect and run.golden end a run, which saves and exits with 79, or warn; all ranks do the
same."""

import json

import pytest
from layouts import FP32, step_dir, train, write_run

STEPS = ["run.steps=6", "checkpoint.every=0"]
# A rate that no machine reaches with this model, and one that every machine does.
TOO_FAST, REACHED = 1e12, 1e-3


def expect(tokens_per_s, steps=2, **more):
    fields = {"tokens_per_s": tokens_per_s, "steps": steps} | more
    return f"run.expect={{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in fields.items())} }}"


def events(run_dir, kind):
    lines = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == kind]


def test_a_run_that_is_too_slow_is_saved_and_stopped_on_all_ranks(run, store, tmp_path):
    path = write_run(tmp_path, store)
    done = train(run, path, *FP32, *STEPS, expect(TOO_FAST), ranks=2, check=False)
    directory = path.parent / "run"
    assert done.returncode == 79, done.stderr
    # The first step warms up; the mean is of steps 2 and 3.
    assert step_dir(directory, 3).is_dir()
    [told] = events(directory, "too_slow")
    assert (told["step"], told["steps"], told["expected"]) == (3, 2, TOO_FAST)
    assert 0 < told["tokens_per_s"] < TOO_FAST
    assert events(directory, "end")[-1]["stopped_by"] == "run.expect"
    assert "stopped by run.expect after step 3; saved" in (directory / "log.txt").read_text()
    assert run("longhaul", "watch", directory, "--until-end", check=False).returncode == 79
    # A run without the rule goes on.
    train(run, path, *FP32, *STEPS, expect(REACHED), ranks=2)
    assert step_dir(directory, 6).is_dir() and len(events(directory, "too_slow")) == 1


def test_a_short_run_that_is_too_slow_is_whole_and_ends_with_79(run, store, tmp_path):
    path = write_run(tmp_path, store)
    done = train(run, path, *FP32, *STEPS, expect(TOO_FAST, steps=50), check=False)
    assert done.returncode == 79
    assert step_dir(path.parent / "run", 6).is_dir()
    assert "all its steps are done" in done.stdout


def test_a_run_that_only_warns_goes_on(run, store, tmp_path):
    path = write_run(tmp_path, store)
    done = train(run, path, *FP32, *STEPS, expect(TOO_FAST, on_miss="warn"),
                 'run.golden={ losses = [{ step = 2, loss = 1.0 }], on_miss = "warn" }')
    directory = path.parent / "run"
    assert [told["step"] for told in events(directory, "too_slow")] == [3, 5]
    assert [told["step"] for told in events(directory, "golden_missed")] == [2]
    assert "golden losses: 0 of 1 step within 5% of run.golden" in done.stdout
    assert events(directory, "end")[-1]["stopped_by"] == ""


def test_the_losses_of_a_run_are_held_against_a_file(run, store, trained, tmp_path):
    golden = tmp_path / "golden_steploss.txt"
    reference = trained((1, []), *FP32, *STEPS)
    lines = map(json.loads, (reference / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in lines if "grad_norm" in line]
    assert len(losses) == 6
    golden.write_text("".join(f"{loss}\n" for loss in losses))
    rule = f'run.golden={{ file = "{golden}", tolerance = 1e-6 }}'
    (tmp_path / "same").mkdir()
    path = write_run(tmp_path / "same", store)
    done = train(run, path, *FP32, *STEPS, rule)
    assert f"golden losses: 6 of 6 steps within 0.0001% of {golden}" in done.stdout

    golden.write_text("".join(f"{loss * (1.1 if step == 4 else 1)}\n"
                              for step, loss in enumerate(losses, 1)))
    (tmp_path / "other").mkdir()
    path = write_run(tmp_path / "other", store)
    done = train(run, path, *FP32, *STEPS, rule, check=False)
    directory = path.parent / "run"
    assert done.returncode == 79 and step_dir(directory, 4).is_dir()
    [told] = events(directory, "golden_missed")
    assert (told["step"], told["loss"]) == (4, losses[3])
    assert "stopped by run.golden after step 4; saved" in done.stdout


def test_a_file_of_golden_losses_that_is_not_there_or_empty_is_refused(run, store, tmp_path):
    path = write_run(tmp_path, store)
    absent = f'run.golden={{ file = "{tmp_path}/absent.txt" }}'
    assert "absent.txt is not on this machine" in run(
        "longhaul", "config", path, "--set", absent).stderr
    done = train(run, path, *FP32, *STEPS, absent, ranks=2, check=False)
    assert done.returncode == 78 and "absent.txt" in done.stderr
    (tmp_path / "empty.txt").write_text("# nothing\n")
    done = train(run, path, *FP32, *STEPS, f'run.golden={{ file = "{tmp_path}/empty.txt" }}',
                 check=False)
    assert done.returncode == 78 and "no loss in it" in done.stderr


def test_a_device_is_told_its_share_of_the_rate_of_all_ranks(trained):
    shares = []
    for ranks in (1, 2):
        lines = (trained((ranks, []), *FP32, *STEPS) / "metrics.jsonl").read_text().splitlines()
        record = json.loads(lines[-1])
        shares.append(record["tflops_per_device"] * ranks / record["tokens_per_s"])
    assert shares[1] == pytest.approx(shares[0], rel=1e-6)


def test_results_tell_the_batch_of_a_replica_from_that_of_a_step(trained):
    directory = trained((1, []), *FP32, *STEPS)
    results = json.loads((directory / "results.json").read_text())["results"]
    told = results["parameters"]
    assert (told["Batch size"], told["Global batch size"]) == (2, 8)
    assert told["Gradient accumulation microsteps"] == 4
    assert told["Model configuration"]["num_hidden_layers"] == 4
    assert told["Data type"] == "float32" and told["Optimizer"]["lr"] == 3e-3
    assert told["Environment variables"]["OMP_NUM_THREADS"]
    metrics = {one["MetricName"]: one["MeasuredValue"] for one in results["metrics"]}
    assert 0 < metrics["MFU"] <= 1 and metrics["Peak memory"] > 0
    log = (directory / "log.txt").read_text()
    assert "; mean of 6: step_time" in log and " TFLOP/s per device mfu " in log
    assert "environment OMP_NUM_THREADS=" in log
