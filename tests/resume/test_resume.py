"""A resumed run is bitwise the uninterrupted one."""

import signal
import subprocess
import time

import pytest
from runs import PACE, curve, final, state, steps_of, tensors, write_config


def train(run, path, *sets, ranks=1, check=True):
    return run("longhaul", "train", path, *[w for s in sets for w in ("--set", s)],
               ranks=ranks, check=check)


BF16_SR = ['precision.master="bf16_sr"', 'precision.moments="bf16"', 'precision.gradients="bf16"']


@pytest.mark.parametrize("precision", [
    [], pytest.param(['precision.compute="fp32"'], marks=pytest.mark.soak),
    ['precision.moments="bf16"', 'precision.gradients="bf16"', 'precision.reduce="bf16"'],
    BF16_SR, ['optimizer.kind="lamb"', "optimizer.lr=2e-2"],
    pytest.param([*BF16_SR, 'optimizer.kind="lamb"', "optimizer.lr=2e-2"], marks=pytest.mark.soak),
], ids=["bf16", "fp32", "bf16_states", "bf16_sr", "lamb", "lamb_bf16_sr"])
def test_four_and_four_steps_are_eight(run, tmp_path, precision):
    whole, parts = write_config(tmp_path, "whole"), write_config(tmp_path, "parts")
    train(run, whole, *precision)
    train(run, parts, "run.stop_after=4", *precision)
    assert max(steps_of(tmp_path / "parts")) == 4
    train(run, parts, *precision)
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    assert len(curve(tmp_path / "whole")) == 8
    assert tensors(final(tmp_path / "parts")) == tensors(final(tmp_path / "whole"))
    assert state(final(tmp_path / "parts")) == state(final(tmp_path / "whole"))


def test_the_comparison_sees_another_data_order(run, tmp_path):
    one, other = write_config(tmp_path, "one"), write_config(tmp_path, "other")
    train(run, one)
    train(run, other, "data.shuffle=false")
    assert curve(tmp_path / "one") != curve(tmp_path / "other")
    assert tensors(final(tmp_path / "one")) != tensors(final(tmp_path / "other"))
    assert state(final(tmp_path / "one")) != state(final(tmp_path / "other"))


def test_every_figure_of_every_step_is_a_number(run, tmp_path):
    train(run, write_config(tmp_path))
    for step, record in steps_of(tmp_path / "run").items():
        assert 0.0 < record["mfu_causal"] < record["mfu"] <= 1.0, step
        assert record["tokens_per_s"] > 0 and record["memory_peak_bytes"] > 0
        parts = record["host_anonymous_bytes"], record["host_file_bytes"]
        assert min(parts) > 0 and sum(parts) < 1.05 * record["host_memory_bytes"], step
        assert record.pop("source_tokens") == {"synthetic": step * 8 * 32}
        assert min(record.pop("phase_memory_bytes", {"none": 1}).values()) > 0
        assert len(record.pop("data_hash")) == 16
        assert all(isinstance(value, (int, float)) for value in record.values())


def start_at_pace(binary, path, *sets):
    words = [word for one in (PACE, *sets) for word in ("--set", one)]
    return subprocess.Popen([binary("longhaul"), "train", str(path), *words],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_the_same_run_twice_is_bitwise_the_same(run, tmp_path):
    one, other = write_config(tmp_path, "one"), write_config(tmp_path, "other")
    train(run, one)
    train(run, other)
    assert curve(tmp_path / "one") == curve(tmp_path / "other")
    assert tensors(final(tmp_path / "one")) == tensors(final(tmp_path / "other"))


@pytest.mark.parametrize("number", [signal.SIGTERM,
                                    pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_a_signal_saves_exits_75_and_the_same_command_goes_on(run, binary, tmp_path, number):
    whole, parts = write_config(tmp_path, "whole"), write_config(tmp_path, "parts")
    longer = ["run.steps=100", "run.stop_after=100", "checkpoint.every=0"]
    process = start_at_pace(binary, parts, *longer)
    metrics = tmp_path / "parts" / "metrics.jsonl"
    for _ in range(200):
        if metrics.exists() and len(metrics.read_text().splitlines()) >= 3:
            break
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=60) == 75
    reached = max(steps_of(tmp_path / "parts"))
    assert 3 <= reached < 100
    train(run, parts, *longer)
    train(run, whole, *longer)
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    last = "checkpoints/step_00000100"
    assert tensors(tmp_path / "parts" / last) == tensors(tmp_path / "whole" / last)


def test_a_killed_run_goes_on_from_its_last_checkpoint(run, binary, tmp_path):
    whole, parts = write_config(tmp_path, "whole"), write_config(tmp_path, "parts")
    longer = ["run.steps=100", "checkpoint.every=10", "checkpoint.keep=2"]
    process = start_at_pace(binary, parts, *longer)
    for _ in range(400):
        if (tmp_path / "parts/checkpoints/step_00000020/manifest.json").exists():
            break
        time.sleep(0.02)
    process.kill()
    process.wait(timeout=60)
    assert max(steps_of(tmp_path / "parts")) < 100
    train(run, parts, *longer)
    train(run, whole, *longer)
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    last = "checkpoints/step_00000100"
    assert tensors(tmp_path / "parts" / last) == tensors(tmp_path / "whole" / last)
    kept = sorted(p.name for p in (tmp_path / "parts/checkpoints").glob("step_*"))
    assert kept == ["step_00000090", "step_00000100"]


def test_a_newer_checkpoint_without_manifest_is_passed_over(run, tmp_path):
    path = write_config(tmp_path, "run")
    train(run, path)
    (final(tmp_path / "run") / "manifest.json").unlink()
    result = train(run, path)
    assert "step_00000008" in result.stdout
    assert steps_of(tmp_path / "run")[5]["attempt"] == 2
    assert (final(tmp_path / "run") / "manifest.json").exists()


def test_a_setting_that_a_resume_may_not_change_is_refused(run, tmp_path):
    path = write_config(tmp_path, "run")
    train(run, path, "run.stop_after=4")
    result = train(run, path, "run.seed=99", check=False)
    assert result.returncode == 78
    assert "run.seed" in result.stderr and "1234" in result.stderr and "99" in result.stderr


def test_a_second_writer_is_refused(run, binary, tmp_path):
    path = write_config(tmp_path, "run")
    process = subprocess.Popen([binary("longhaul"), "train", str(path), "--set",
                                "run.steps=100000"], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if (tmp_path / "run" / "metrics.jsonl").exists():
                break
            time.sleep(0.05)
        result = train(run, path, check=False)
        assert result.returncode in (75, 78)
        assert str(process.pid) in result.stderr
    finally:
        process.kill()
        process.wait(timeout=60)
