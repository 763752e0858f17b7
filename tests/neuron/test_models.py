"""Every dense family in every kind of layout on the stand-in of AWS's native backend, and what a user
does with such a run afterwards."""

import json
import re
import signal
import subprocess
import sys

import h5py
import pytest
from bert_rows import make_examples
from programs import command_of, split
from test_training import (DEVICE, FP32, LAYOUTS, ONE, PLAIN, TEN, assert_like_a_cpu, build_store,  # noqa: F401
                           compiled, judged, standin, step_dir, train, write_run)

FAMILIES = ["gemma3_text", "gpt_neox", "bert"]
SHAPES = ["tp2_sequence", "pp2", "zero1", "zero3", "cp2_ring"]


@pytest.fixture(scope="session")
def text_store(run, tmp_path_factory):
    return build_store(run, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def examples(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert") / "a_training_0.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in make_examples(160, 32, 6).items():
            file.create_dataset(name, data=values)
    return path


@pytest.fixture
def store(request, text_store):
    """What the test's family reads: BERT reads examples of masked tokens."""
    case = getattr(request.node, "callspec", None)
    bert = case is not None and case.params.get("family") == "bert"
    return request.getfixturevalue("examples") if bert else text_store


@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("family", split(FAMILIES, []))
def test_a_family_in_a_layout_on_the_backend_is_that_of_a_cpu(judged, standin, family, layout):  # noqa: F811
    assert_like_a_cpu(judged, standin, LAYOUTS[layout], model_type=family)


@pytest.mark.parametrize("family", ["bert"])
def test_bert_on_the_backend_is_that_of_a_cpu(judged, standin, family):  # noqa: F811
    assert_like_a_cpu(judged, standin, ONE, model_type=family)


def test_a_model_of_the_backend_is_evaluated_generated_from_and_exported_as_on_a_cpu(
        run, store, tmp_path, monkeypatch):
    config = write_run(tmp_path, store)
    train(run, config, *FP32, *DEVICE, "run.steps=4")
    model = tmp_path / "model-out"
    run("longhaul", "export", tmp_path / "run", "--out", model)
    tokenizer = store.parent / "tokenizer" / "tokenizer.json"
    (model / "tokenizer.json").write_text(tokenizer.read_text())
    device = ["--device", "neuron", "--neuron-python", json.loads(DEVICE[1].split("=", 1)[1])]

    def said(*words):
        on_device, on_cpu = (run("longhaul", *words, *more).stdout for more in (device, ["--device", "cpu"]))
        return on_device, on_cpu

    losses = [float(re.search(r"loss\s+([0-9.]+)", text)[1]) for text in
              said("eval", model, "--data", store, "--max-sequences", "4")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    texts = said("generate", model, "--prompt", "ab cd", "--max-new-tokens", "8", "--temperature", "0")
    assert texts[0] == texts[1] and texts[0].strip()

    # Operations that the verbs need, and that are in no list of what a plug-in must have.
    monkeypatch.setenv("NEURON_STANDIN_WITHOUT", "ge,gt")
    refused = run("longhaul", "eval", model, "--data", store, "--max-sequences", "4", *device, check=False)
    assert refused.returncode == 78 and "--device-fallback warn" in refused.stderr
    assert "operations ran on the CPU" in refused.stderr and "aten::ge" in refused.stderr
    warned = run("longhaul", "generate", model, "--prompt", "ab cd", "--max-new-tokens", "8", "--temperature",
                 "0", "--device-fallback", "warn", *device)
    assert warned.stdout == texts[1]
    assert "warning: operations ran on the CPU" in warned.stderr and "aten::gt" in warned.stderr

    # Ctrl-C ends it at once: Python has no handler.
    command, environment = command_of("longhaul", [
        "generate", model, "--prompt", "ab", "--max-new-tokens", "60", "--device-fallback", "warn", *device])
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as started:
        assert len(started.stdout.read(3)) == 3
        started.send_signal(signal.SIGINT)
        assert started.wait(timeout=100) == -signal.SIGINT


def test_bench_and_new_load_the_backend(run, store, tmp_path, monkeypatch):
    """Their measurements are for a real device: here the backend refuses the machine."""
    monkeypatch.setenv("NEURON_STANDIN_INSTANCE", "trn1.32xlarge")
    model = write_run(tmp_path, store).parent / "model"
    device = ["--device", "neuron", "--neuron-python"]
    for words in (["bench", "--quick"], ["new", model, store]):
        refused = run("longhaul", *words, *device, sys.executable, check=False)
        assert refused.returncode == 78 and "trn1.32xlarge" in refused.stderr, refused.stderr


@pytest.mark.soak
def test_new_writes_a_run_for_all_cores_of_the_machine(run, store, tmp_path):
    model = write_run(tmp_path, store).parent / "model"
    run("longhaul", "new", model, store, "--device", "neuron", "--neuron-python", sys.executable,
        "--out", tmp_path / "new.toml", timeout=600)
    text = (tmp_path / "new.toml").read_text()
    assert "8 x Neuron core of trn2.48xlarge and 25.8 GB of memory each" in text
    assert 'device = "neuron"' in text and f"neuron_python = {json.dumps(sys.executable)}" in text
    train(run, tmp_path / "new.toml", "run.stop_after=1", f'run.dir="{tmp_path / "made"}"')
    assert step_dir(tmp_path / "made", 1).exists()
