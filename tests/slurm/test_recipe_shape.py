"""A run with the layout of the 70B recipe, from a Hugging Face directory to another one: tensor and
pipeline parallel replicas on four nodes, of which one is lost."""

import pytest
from faults import Supervised, strike
from programs import SOURCE
from small_model import make_model, transformers_loss, validations, write_corpus

RECIPE = SOURCE / "recipes/llama3-70b-cpt.toml"
STEPS = 40
SEQ_LEN = 32
VALIDATED = 16


@pytest.fixture
def brought(run, folder):
    """Makes what a user brings: a model and text, as the recipe's paths name them."""
    make_model(folder / "models/Llama-3-70B", num_hidden_layers=4)
    write_corpus(folder / "corpus")
    run("longhaul", "data", "build", folder / "corpus/*.txt", "--tokenizer",
        folder / "models/Llama-3-70B", "--out", folder / "data/train", "--holdout", "20%")
    (folder / "data/train-val").rename(folder / "data/validation")
    return folder


def test_the_70b_recipe_loses_a_node_and_ends_as_a_model_that_transformers_evaluates_the_same(
        cluster, binary, run, brought):
    # The settings change only sizes and what a machine without accelerators needs. The run computes
    # in fp32, so that losses can be compared.
    small = ['model.config="models/Llama-3-70B"', "parallel.partition=", "parallel.tp=2",
             "parallel.pp=2", f"data.seq_len={SEQ_LEN}", "batch.global_size=8",
             f'run.dir="{brought}/run"', "run.device=cpu", "run.threads=1",
             "schedule.warmup_steps=4", "validation.every=20", "validation.batches=2",
             "precision.compute=fp32"]
    supervised = Supervised(cluster, binary, brought, steps=STEPS, config=RECIPE, layout=small)
    strike(supervised, "lose_a_node", seed=3)
    supervised.finish()
    assert "pp 1 dp 1 cp 0 tp 1\n" in (brought / "run/log.txt").read_text()
    assert [event["kind"] for event in supervised.events("fault")] == ["node"]
    saved = sorted((brought / "run/checkpoints").glob("step_????????/manifest.json"))
    assert [int(path.parent.name[5:]) for path in saved] == [STEPS - 5, STEPS]  # every 5, keep 2

    run("longhaul", "export", brought / "run", "--out", brought / "hf")
    last = validations(brought / "run")[STEPS]["loss"]
    theirs = transformers_loss(brought / "hf", brought / "data/validation", SEQ_LEN, VALIDATED)
    assert theirs == pytest.approx(last, rel=1e-5)
    before = transformers_loss(brought / "models/Llama-3-70B", brought / "data/validation",
                               SEQ_LEN, VALIDATED)
    assert before == pytest.approx(validations(brought / "run")[0]["loss"], rel=1e-5)
    assert last < before - 1e-4  # at the recipe's rate, 1.5e-5
