"""BERT from text to a directory that transformers loads: examples, phase 1, a kill, phase 2."""

import json
import math
import pathlib
import subprocess
import time

import h5py
import numpy as np
import pytest
import torch
from bert_examples import small_shards
from bert_models import call, fields_of
from programs import SOURCE, command_of
from transformers import BertForPreTraining

SMALL = ('model.override={ num_hidden_layers = 2, hidden_size = 64, intermediate_size = 96, '
         'num_attention_heads = 4, vocab_size = 35, max_position_embeddings = 64 }')


def recipe(name, folder, shards, length, *sets):
    """The words that train a recipe with a smaller model, batch and warm-up; its optimizer
    stays."""
    return ["train", str(SOURCE / "recipes" / f"{name}.toml"), *[word for one in [
        f"model.config={SOURCE / 'recipes/models/bert-large-uncased/config.json'}", SMALL,
        f'data.train=[{{ path = "{shards}" }}]', f"data.seq_len={length}", "batch.micro_size=4",
        "batch.global_size=16", "schedule.warmup_steps=4", "optimizer.lr=5e-3", "run.device=cpu",
        "run.threads=1", f"run.dir={folder}", *sets] for word in ("--set", one)]]


def records(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps = {r["step"]: r for r in map(json.loads, lines) if "grad_norm" in r}
    return [(r["loss"], r["losses"], r["grad_norm"]) for _, r in sorted(steps.items())]


def kill_after(arguments, file):
    """Kills a run when it has written a file."""
    command, environment = command_of("longhaul", arguments)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    for _ in range(1500):
        if file.exists():
            break
        time.sleep(0.02)
    process.kill()
    process.wait(timeout=60)
    assert file.exists()


def all_fields(shards):
    """Every example of a directory, as transformers' models take them."""
    parts = []
    for path in sorted(pathlib.Path(shards).glob("*_training_*.hdf5")):
        with h5py.File(path) as file:
            parts.append({name: np.array(file[name]) for name in file})
    return fields_of({name: np.concatenate([p[name] for p in parts]) for name in parts[0]})


@pytest.fixture(scope="module")
def data(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return {32: small_shards(run, folder / "phase1", 32, 5),
            64: small_shards(run, folder / "phase2", 64, 10)}


@pytest.fixture(scope="module")
def phases(run, data, tmp_path_factory):
    """Trains phase 1, which is killed and goes on, and phase 2, which begins from its weights."""
    folder = tmp_path_factory.mktemp("runs")
    first = recipe("bert-large-phase1", folder / "one", data[32], 32, "run.steps=24",
                   "checkpoint.every=8", "checkpoint.keep=2", 'log.results="bert"')
    kill_after(first, folder / "one/checkpoints/step_00000008/manifest.json")
    run("longhaul", *first)
    run("longhaul", *recipe("bert-large-phase2", folder / "two", data[64], 64, "run.steps=8",
                            f"init.weights={folder / 'one'}"), ranks=2)
    return folder


def test_a_killed_phase_is_the_one_that_was_not(run, data, phases, tmp_path):
    run("longhaul", *recipe("bert-large-phase1", tmp_path / "whole", data[32], 32, "run.steps=24",
                            "checkpoint.every=8", "checkpoint.keep=2"))
    whole = records(tmp_path / "whole")
    assert records(phases / "one") == whole and len(whole) == 24
    assert whole[0][0] - whole[-1][0] > 0.2


def test_results_have_an_entry_for_each_shard(phases):
    """A shard has a quarter of the data, and an epoch of the source's script has three shards."""
    metrics = json.loads((phases / "one/results.json").read_text())["results"]["metrics"]
    at = [one["AdditionalData"] for one in metrics if one["MetricName"] == "Loss"]
    places = [(one["Epoch"], one["File index"]) for one in at]
    assert places == [(n // 3, 1 + n % 3) for n in range(len(at))] and len(at) >= 3
    ends = [json.loads(line)["epoch"] for line in (phases / "one/metrics.jsonl").open()][-24:]
    assert len(at) == math.ceil(4 * ends[-1] - 1e-9)
    assert metrics[-4]["MetricName"] == "FinalLoss"
    assert at[-1]["Global step"] == metrics[-1]["AdditionalData"]["Global step"] == 24


def test_phase_2_begins_where_phase_1_has_ended(phases):
    one, two = records(phases / "one"), records(phases / "two")
    assert len(two) == 8
    # Phase 2's positions from 32 on are new to the model, and its tokens are known.
    assert two[0][0] < one[0][0] - 0.1


def test_transformers_loads_it_with_the_same_losses(run, data, phases, tmp_path):
    run("longhaul", "export", phases / "two", "--out", tmp_path / "hf")
    model = BertForPreTraining.from_pretrained(tmp_path / "hf", dtype=torch.float32).eval()
    with torch.no_grad():
        losses = [loss.item() for loss in call(model, all_fields(data[64]))[2]]
    (packed,) = (phases / "two/data").glob("examples_*")
    for source in (tmp_path / "hf", phases / "two"):
        said = run("longhaul", "eval", source, "--data", packed, "--dtype", "fp32", "--micro-size",
                   16, "--json")
        found = json.loads(said.stdout)["losses"]
        assert found["masked_token"] == pytest.approx(losses[0], rel=2e-5)
        assert found["next_sentence"] == pytest.approx(losses[1], rel=2e-5)


def test_what_a_bert_cannot_do_is_refused_by_name(run, data, phases, tmp_path):
    said = run("longhaul", "generate", phases / "two", "--prompt", "ba", check=False)
    assert said.returncode == 78 and "cannot continue a text" in said.stderr
    longer = recipe("bert-large-phase2", tmp_path / "longer", data[64], 128, "init.weights=")
    said = run("longhaul", *longer, check=False)
    assert said.returncode == 78 and "max_position_embeddings = 64" in said.stderr
    other = recipe("bert-large-phase1", tmp_path / "other", data[64], 32)
    said = run("longhaul", *other, check=False)
    assert said.returncode == 78 and "rows have 64 tokens, data.seq_len is 32" in said.stderr
