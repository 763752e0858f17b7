"""A rank holds its share of what is loaded and a buffer; an export holds windows of the tensors.
Limits on memory show it. The cases are smaller ones of test_load_memory_soak.py."""

import pytest
from load_limits import LAYER, MB, export, load, save

LAYERS = 6  # 252 MB of weights
SHARE = LAYERS * LAYER // 4
BUFFER = 64 << 20
BASE = 60 * MB  # programs, MPI, threads' stacks


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    save(run, path, LAYERS)
    return path


@pytest.mark.parametrize("layout", ["zero", "tp"])
def test_a_rank_needs_its_share_and_a_buffer(run, saved, layout):
    report = load(run, saved, layout, LAYERS, 4, SHARE + BUFFER + BASE)
    assert LAYERS * LAYER <= report["read"] <= 1.01 * LAYERS * LAYER


def test_the_limit_is_felt(run, saved):
    done = load(run, saved, "zero", LAYERS, 2, SHARE + BASE, check=False)
    assert done.returncode != 0


def test_an_export_needs_windows(run, saved, tmp_path):
    # Two threads hold 64 MiB each; LibTorch's libraries take the rest.
    export(run, saved, tmp_path / "hf", 250 * MB, "--threads", 2, "--shard-size", "100MB")
    shards = sorted((tmp_path / "hf").glob("*.safetensors"))
    assert len(shards) == 3
    assert sum(s.stat().st_size for s in shards) >= LAYERS * LAYER
