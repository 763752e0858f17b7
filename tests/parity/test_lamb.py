"""Twenty steps of LAMB against an fp64 reference on transformers' own tensors, in one rank and cut
over tensor, pipeline and ZeRO ranks."""

import json
from functools import lru_cache

import numpy
import pytest
from datasets import Dataset
from lamb import Lamb
from models import make_model
from programs import later
from safetensors.torch import load_file
from test_training import BATCH, LENGTH, STEPS, config_text, make_rows

RATE = 2e-2
CURVE = 1e-4  # losses and norms, as of AdamW against torch
WEIGHTS = 1e-3  # of a tensor's way from its start
LAMB = ['optimizer.kind="lamb"', f"optimizer.lr={RATE}"]
CUT = (8, ["parallel.tp=2", "parallel.pp=2", "parallel.zero=1", "batch.micro_size=1"])
ONE = (1, [])


def is_plain(name):
    return "norm" in name or ".ln_" in name or name.endswith("bias")


def start_of(name):
    return {n: p.detach().double().numpy().copy() for n, p in make_model(name).named_parameters()}


@lru_cache
def reference(name, all_decay=False, clamp=True):
    """Losses, norms, last weights and last ratios; forward and backward are transformers' in fp64."""
    model = make_model(name).double()
    arrays = {n: p.detach().numpy() for n, p in model.named_parameters()}  # shared memory
    lamb = Lamb(arrays, lambda n: all_decay or not is_plain(n), RATE, clamp=clamp)
    rows, losses, norms = make_rows(), [], []
    for step in range(STEPS):
        batch = rows[step * BATCH:(step + 1) * BATCH]
        loss = model(input_ids=batch, labels=batch).loss
        model.zero_grad()
        loss.backward()
        gradients = {n: p.grad.numpy() for n, p in model.named_parameters()}
        norms.append(lamb.step(arrays, gradients))
        losses.append(loss.item())
    return losses, norms, {n: a.copy() for n, a in arrays.items()}, lamb.ratios


def trained(run, tmp_path, name, layout, *sets):
    """Losses, norms, and the exported weights by the names of Hugging Face."""
    ranks, keys = layout
    make_model(name).save_pretrained(tmp_path / "model")
    ids = make_rows().tolist()
    Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * LENGTH] * len(ids),
                       "labels": ids}).save_to_disk(tmp_path / "rows")
    (tmp_path / "run.toml").write_text(config_text(tmp_path, 2, STEPS, LENGTH).replace(
        "lr = 1e-3\n", ""))
    words = [w for s in [*LAMB, *keys, *sets] for w in ("--set", s)]
    run("longhaul", "train", tmp_path / "run.toml", *words, ranks=ranks,
        env={"OMP_NUM_THREADS": "1"})
    records = [json.loads(s) for s in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    points = [(r["loss"], r["grad_norm"]) for r in records if "grad_norm" in r]
    run("longhaul", "export", tmp_path / "run", "--out", tmp_path / "export", "--dtype", "fp32")
    weights = {}
    for path in (tmp_path / "export").glob("*.safetensors"):
        weights.update({n: t.double().numpy() for n, t in load_file(path).items()})
    return [p[0] for p in points], [p[1] for p in points], weights


def violations(ours, theirs, start):
    relative = [max(abs(a - b) / b for a, b in zip(x, y, strict=True))
                for x, y in zip(ours[:2], theirs[:2])]
    found = [f"{kind} {value}" for kind, value in zip(("losses", "norms"), relative)
             if value > CURVE]
    for name, last in theirs[2].items():
        off = numpy.linalg.norm(ours[2][name] - last) / numpy.linalg.norm(last - start[name])
        if off > WEIGHTS:
            found.append(f"{name} {off}")
    return found


# GPT-2 has fused queries, keys and values; the tied model has its embedding as its head, on two
# stages.
@pytest.mark.parametrize("name,layout", [
    ("gpt2", ONE), ("tied", CUT), *later(("gpt2", CUT), ("tied", ONE))])
def test_twenty_steps_of_lamb_are_those_of_the_reference(run, tmp_path, name, layout):
    theirs = reference(name)
    assert not violations(trained(run, tmp_path, name, layout), theirs, start_of(name))
    assert theirs[0][0] - theirs[0][-1] >= 0.3  # flat curves would prove little
    assert max(theirs[1]) > 1.0  # clipped
    assert min(theirs[3].values()) < 0.5


def test_ratios_end_at_one_where_norms_decay_too(run, tmp_path):
    ours = trained(run, tmp_path, "llama3_gqa", ONE, "optimizer.no_decay=[]")
    start = start_of("llama3_gqa")
    assert not violations(ours, reference("llama3_gqa", all_decay=True), start)
    assert violations(ours, reference("llama3_gqa", all_decay=True, clamp=False), start)
    assert violations(ours, reference("llama3_gqa"), start)


def test_a_wrong_setting_of_lamb_is_seen(run, tmp_path):
    ours = trained(run, tmp_path, "gpt2", ONE, "optimizer.betas=[0.9, 0.99]")
    assert violations(ours, reference("gpt2"), start_of("gpt2"))
