"""Data-parallel layouts train the same model as one rank."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, final, state, steps_of, tensors, write_config  # noqa: E402

TOLERANCE = 1e-5  # losses and gradient norms of 20 steps in fp32
FP32 = ['precision.compute="fp32"', "run.steps=20", "checkpoint.every=0"]


def train(run, path, *sets, ranks=1):
    run("longhaul", "train", path, *[w for s in sets for w in ("--set", s)], ranks=ranks,
        env={"OMP_NUM_THREADS": "1"})


def worst(ours, theirs):
    assert len(ours) == len(theirs) == 20
    return max(abs(a - b) / abs(b) for x, y in zip(ours, theirs) for a, b in zip(x, y))


@pytest.fixture(scope="module")
def one_rank(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("one")
    train(run, write_config(path), *FP32)
    return curve(path / "run")


@pytest.mark.parametrize("ranks,zero", [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1)])
def test_data_parallel_ranks_agree_with_one(run, tmp_path, one_rank, ranks, zero):
    train(run, write_config(tmp_path), *FP32, f"parallel.zero={zero}", "batch.micro_size=1",
          ranks=ranks)
    assert worst(curve(tmp_path / "run"), one_rank) <= TOLERANCE


def test_the_tolerance_sees_one_percent_of_learning_rate(run, tmp_path, one_rank):
    train(run, write_config(tmp_path), *FP32, "optimizer.lr=3.03e-3", ranks=2)
    assert worst(curve(tmp_path / "run"), one_rank) > TOLERANCE


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_layout_resumes_bitwise(run, tmp_path, ranks):
    train(run, write_config(tmp_path, "whole"), ranks=ranks)
    parts = write_config(tmp_path, "parts")
    train(run, parts, "run.stop_after=4", ranks=ranks)
    train(run, parts, ranks=ranks)
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    assert tensors(final(tmp_path / "parts")) == tensors(final(tmp_path / "whole"))
    assert state(final(tmp_path / "parts")) == state(final(tmp_path / "whole"))


@pytest.mark.parametrize("before,after", [(1, 2), (2, 1), (4, 2), (2, 4)])
def test_a_checkpoint_goes_on_with_another_number_of_ranks(run, tmp_path, one_rank, before,
                                                           after):
    path = write_config(tmp_path)
    train(run, path, *FP32, "run.stop_after=9", ranks=before)
    train(run, path, *FP32, ranks=after)
    assert worst(curve(tmp_path / "run"), one_rank) <= TOLERANCE
    assert steps_of(tmp_path / "run")[10]["attempt"] == 2
    manifest = tmp_path / "run/checkpoints/step_00000020/manifest.json"
    assert len(json.loads(manifest.read_text())["ranks"]) == after
