"""A bit that flips in one rank's memory: the check says which rank and tensor, and the next start
goes on from a sound checkpoint."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, final, tensors, write_config  # noqa: E402

TEMPORARY = 75
SETS = ['precision.compute="fp32"', "batch.micro_size=1", "checkpoint.every=2",
        "resilience.checksum_every=1"]
NORM = "model.layers.1.input_layernorm.weight"


def train(run, path, ranks, *sets, check=True):
    return run("longhaul", "train", path, *[w for s in (*SETS, *sets) for w in ("--set", s)],
               ranks=ranks, check=check)


def flip(rank, tensor="model.layers.0.mlp.up_proj.weight", step=5, attempt=1):
    return (f'debug.faults=[{{step = {step}, kind = "bit_flip", rank = {rank}, '
            f'tensor = "{tensor}", attempt = {attempt}}}]')


def corruption(run_dir):
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    (event,) = [e for e in map(json.loads, lines) if e["event"] == "corruption"]
    return event


@pytest.mark.parametrize("ranks,layout,rank,named", [
    pytest.param(2, ["parallel.zero=0"], 1, [0, 1], marks=pytest.mark.soak),
    (4, ["parallel.zero=0"], 2, [2]),
    (4, ["parallel.zero=1", "resilience.checksum_every=100"], 1, None),
    pytest.param(8, ["parallel.tp=2", "parallel.zero=1", "batch.micro_size=2"], 5, [5],
                 marks=pytest.mark.soak),
], ids=["dp2", "dp4", "dp4_gathered_anew", "tp2_dp4"])
def test_the_rank_and_the_tensor_are_named(run, tmp_path, ranks, layout, rank, named):
    result = train(run, write_config(tmp_path), ranks, *layout, flip(rank), check=False)
    if named is None:
        # Weights that are gathered anew in each step are right again before the check.
        assert result.returncode == 0
        return
    assert result.returncode == TEMPORARY, result.stderr
    event = corruption(tmp_path / "run")
    assert event["ranks"] == named and event["step"] == 5
    assert event["tensor"] == "weight of model.layers.0.mlp.up_proj.weight"
    errors = [line for line in result.stderr.splitlines() if line.startswith("longhaul: error")]
    assert len(errors) == 1 and "[corruption] step 5:" in errors[0], result.stderr
    assert ("nobody can say which of the two is right" in errors[0]) == (len(named) > 1)
    saved = sorted(p.name for p in (tmp_path / "run/checkpoints").glob("step_*"))
    assert saved == ["step_00000002", "step_00000004"]  # from before


@pytest.mark.parametrize("ranks,layout,tensor,rank,named", [
    (2, ["parallel.tp=2", "parallel.sequence=false"], NORM, 1, [0, 1]),
    pytest.param(4, ["parallel.tp=4"], "model.layers.1.self_attn.k_proj.weight", 3, [2, 3],
                 marks=pytest.mark.soak),
    (2, ["parallel.pp=2", "model.override.tie_word_embeddings=true"], "model.embed_tokens.weight",
     0, [0, 1]),
], ids=["norm", "key_heads", "tied_embedding"])
def test_copies_on_one_replica_are_compared(run, tmp_path, ranks, layout, tensor, rank, named):
    result = train(run, write_config(tmp_path), ranks, *layout, flip(rank, tensor), check=False)
    assert result.returncode == TEMPORARY, result.stderr
    event = corruption(tmp_path / "run")
    assert (event["step"], event["ranks"]) == (5, named)
    assert event["tensor"] == f"weight of {tensor}"
    saved = sorted(p.name for p in (tmp_path / "run/checkpoints").glob("step_*"))
    assert saved == ["step_00000002", "step_00000004"]


def test_the_next_start_goes_on_from_before_the_corruption(run, tmp_path):
    whole, parts = write_config(tmp_path, "whole"), write_config(tmp_path, "parts")
    two = [2, "parallel.zero=0"]
    # The check before the save finds the flip, not the one of every 100 steps.
    rare = "resilience.checksum_every=100"
    result = train(run, parts, *two, rare, flip(1, NORM, step=6), check=False)
    assert result.returncode == TEMPORARY
    assert corruption(tmp_path / "parts")["step"] == 6
    train(run, parts, *two, rare, flip(1, NORM, step=6))  # attempt 2: no fault
    train(run, whole, *two)
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    assert tensors(final(tmp_path / "parts")) == tensors(final(tmp_path / "whole"))


def test_without_the_look_the_corruption_would_be_saved(run, tmp_path):
    """Without the check the flipped bit reaches the checkpoint."""
    off = "resilience.checksum_every=0"
    train(run, write_config(tmp_path, "bad"), 2, "parallel.zero=0", off, flip(0, NORM))
    train(run, write_config(tmp_path, "good"), 2, "parallel.zero=0", off)
    assert tensors(final(tmp_path / "bad")) != tensors(final(tmp_path / "good"))
