"""Every dense family in every kind of layout on the stand-in of AWS's native backend, and what a user
does with such a run afterwards."""

import json
import re

import h5py
import pytest
from bert_rows import make_examples
from programs import split
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
        run, store, tmp_path):
    config = write_run(tmp_path, store)
    train(run, config, *FP32, *DEVICE, "run.steps=3")
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
