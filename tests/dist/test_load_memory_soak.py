"""2 GB of weights, resharded and exported by processes of at most 600 MB."""

import pytest
from load_limits import LAYER, MB, export, load, save

LAYERS = 48


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    save(run, path, LAYERS)
    return path


@pytest.mark.parametrize("layout", ["zero", "tp", "pp"])
def test_two_gigabytes_by_four_ranks(run, saved, layout):
    report = load(run, saved, layout, LAYERS, 4, 600_000 * 1024)
    assert report["read"] <= 1.01 * LAYERS * LAYER


def test_an_export_of_two_gigabytes(run, saved, tmp_path):
    export(run, saved, tmp_path / "hf", 600_000 * 1024)
    (shard,) = (tmp_path / "hf").glob("*.safetensors")
    assert shard.stat().st_size >= 2000 * MB
    export(run, saved, tmp_path / "bf16", 600_000 * 1024, "--dtype", "bf16", "--shard-size",
           "200MB")
    assert len(list((tmp_path / "bf16").glob("*.safetensors"))) >= 5
