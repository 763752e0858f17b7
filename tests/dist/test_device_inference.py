"""eval and generate on a device that a plug-in brings say what they say on a CPU."""

import json

import pytest
from layouts import FP32
from programs import BIN

PLUGIN = BIN / "liblonghaul_software_accelerator.so"
DEVICE = ["--device", "plugin", "--device-plugin", PLUGIN]
TP2 = (2, ["--tp", 2])
ONE = (1, [])


@pytest.fixture(scope="module")
def model(trained):
    return trained(ONE, *FP32)


def evaluated(run, model, store, layout, *words):
    ranks, split = layout
    return json.loads(run("longhaul", "eval", model, "--data", store, "--seq-len", 32, "--json",
                          "--max-sequences", 40, *split, *words, ranks=ranks).stdout)


@pytest.mark.parametrize("layout", [ONE, TP2], ids=["one", "tp2"])
@pytest.mark.parametrize("dtype, tolerance", [("fp32", 1e-6), ("bf16", 2e-3)])
def test_a_device_evaluates_what_a_cpu_does(run, model, store, layout, dtype, tolerance):
    words = ["--dtype", dtype]
    expected = evaluated(run, model, store, ONE, *words, "--device", "cpu")
    found = evaluated(run, model, store, layout, *words, *DEVICE)
    assert found["loss"] == pytest.approx(expected["loss"], rel=tolerance, abs=0)
    assert found["targets"] == expected["targets"] > 0


@pytest.mark.parametrize("layout", [ONE, TP2], ids=["one", "tp2"])
@pytest.mark.parametrize("words", [[], ["--temperature", 1.0, "--seed", 7]],
                         ids=["greedy", "sampled"])
def test_a_device_generates_what_a_cpu_does(run, model, layout, words, tmp_path, monkeypatch):
    def generated(layout, *where):
        ranks, split = layout
        return run("longhaul", "generate", model, "--prompt", "abc", "--max-new-tokens", 12,
                   "--dtype", "fp32", *words, *split, *where, ranks=ranks).stdout

    expected = generated(ONE, "--device", "cpu")
    assert expected
    monkeypatch.setenv("SOFTDEV_REPORT", str(tmp_path / "counters"))
    assert generated(layout, *DEVICE) == expected
    for line in (tmp_path / "counters").open():
        assert json.loads(line)["operations"]["longhaul::rms_norm_forward"][0] > 12


def refused(run, model, *words):
    result = run("longhaul", "generate", model, "--prompt", "abc", "--max-new-tokens", 4, *words,
                 check=False)
    assert result.returncode != 0
    return result.stderr


def test_a_device_without_its_library_is_refused(run, model, tmp_path):
    assert "--device plugin needs the device's library" in refused(run, model, "--device", "plugin")
    assert "that --device cpu leaves out" in refused(run, model, "--device", "cpu",
                                                     "--device-plugin", PLUGIN)
    missing = tmp_path / "none.so"
    assert str(missing) in refused(run, model, "--device-plugin", missing)
