"""An export by several ranks, and one that fails on one of them."""

import filecmp

import pytest


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    run("longhaul_load_tool", "save", path, "zero", 1, "weights", ranks=2)
    return path / "step_00000001"


def test_ranks_share_the_shards_of_an_export(run, saved, tmp_path):
    words = ("export", saved, "--shard-size", "9MB", "--dtype", "bf16", "--out")
    run("longhaul", *words, tmp_path / "one")
    result = run("longhaul", *words, tmp_path / "three", ranks=3)
    assert result.stdout.count("exported") == 1
    names = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert len([n for n in names if n.endswith(".safetensors")]) == 4
    _, differing, missing = filecmp.cmpfiles(tmp_path / "one", tmp_path / "three", names,
                                             shallow=False)
    assert not differing and not missing


def test_a_failure_on_one_rank_is_told_once_and_leaves_nothing(run, saved, tmp_path):
    data = saved / "a1_rank_00001.safetensors"
    good = data.read_bytes()
    data.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        result = run("longhaul", "export", saved, "--shard-size", "9MB", "--out",
                     tmp_path / "hf", ranks=3, check=False)
    finally:
        data.write_bytes(good)
    assert result.returncode == 78
    assert result.stderr.count("longhaul: error:") == 1
    assert "a1_rank_00001.safetensors: block" in result.stderr
    assert not list(tmp_path.iterdir())
