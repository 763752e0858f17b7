"""Twenty steps on a GPU follow those on the CPU. The test has the label gpu."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, write_config  # noqa: E402

STEPS = ["run.steps=20", "checkpoint.every=0"]


def train(run, path, device, *sets):
    result = run("longhaul", "train", path, *[
        w for s in (*STEPS, f'run.device="{device}"', *sets) for w in ("--set", s)
    ], check=False)
    if device == "cuda" and "no such device" in result.stderr:
        pytest.skip("no CUDA device")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("compute,tolerance", [("fp32", 1e-4), ("bf16", 2e-2)])
def test_twenty_steps_follow_the_cpu(run, tmp_path, compute, tolerance):
    gpu, cpu = write_config(tmp_path, "gpu"), write_config(tmp_path, "cpu")
    train(run, gpu, "cuda", f'precision.compute="{compute}"')
    train(run, cpu, "cpu", f'precision.compute="{compute}"')
    ours, theirs = curve(tmp_path / "gpu"), curve(tmp_path / "cpu")
    assert len(ours) == len(theirs) == 20
    assert max(abs(a[0] - b[0]) / b[0] for a, b in zip(ours, theirs)) <= tolerance
