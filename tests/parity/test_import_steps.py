"""Optimizers of other programs keep a count of updates for each parameter, which the import
reads."""

import json

import pytest
import torch
from import_helpers import assert_same, save_dcp, stored_state
from test_import import make_model


def as_number(kind):
    """A count of updates in the forms in which optimizers keep it."""
    return {"int": int, "float": float, "scalar": lambda n: torch.tensor(float(n)),
            "one element": lambda n: torch.tensor([n], dtype=torch.int64),
            "int32": lambda n: torch.tensor(n, dtype=torch.int32),
            "bf16": lambda n: torch.tensor([n], dtype=torch.bfloat16)}[kind]


def moments_with(state, step, value=0.5):
    return {n: {"step": step(n), "exp_avg": torch.full_like(t, value),
                "exp_avg_sq": torch.full_like(t, value)} for n, t in state.items()}


def saved_counts(path):
    [file] = path.glob("*state.json")
    saved = json.loads(file.read_text())
    return saved["updates"], {n: g["updates"] for g in saved["fewer_updates"]
                              for n in g["parameters"]}


@pytest.mark.parametrize("kind", ["int", "float", "scalar", "one element", "int32", "bf16"])
def test_a_count_of_updates_is_read_in_every_form_that_optimizers_have(run, tmp_path, kind):
    _, _, state = make_model(tmp_path / "hf", torch.float32, layers=1)
    number = as_number(kind)
    save_dcp({"model": state, "optimizer": {"state": moments_with(state, lambda n: number(7))}},
             tmp_path / "dcp")
    result = run("longhaul", "import", tmp_path / "dcp", "--config", tmp_path / "hf", "--format",
                 "checkpoint", "--out", tmp_path / "out")
    assert "both moments and the count of 7 updates" in result.stdout
    assert saved_counts(tmp_path / "out/step_00000007") == (7, {})


def refused_import(run, tmp_path, *words):
    refused = run("longhaul", "import", tmp_path / "dcp", "--config", tmp_path / "hf", "--format",
                  "checkpoint", "--out", tmp_path / "out", check=False)
    assert refused.returncode == 78 and not (tmp_path / "out").exists()
    for word in words:
        assert word in refused.stderr
    assert "import the weights alone" in refused.stderr


@pytest.mark.parametrize("part", [False, True])
def test_a_count_of_0_beside_moments_is_refused(run, tmp_path, part):
    _, _, state = make_model(tmp_path / "hf", torch.float32, layers=1)
    wrong = "model.layers.0.mlp.up_proj.weight"
    moments = moments_with(state, lambda n: 0 if n == wrong or not part else 3)
    save_dcp({"model": state, "optimizer": {"state": moments}}, tmp_path / "dcp")
    refused_import(run, tmp_path, "the optimizer counts 0 updates, but exp_avg of",
                   *([wrong] if part else []))


def test_steps_that_are_no_counts_and_states_in_part_are_refused(run, tmp_path):
    _, _, state = make_model(tmp_path / "hf", torch.float32, layers=1)
    name = "model.norm.weight"
    for change, words in ((lambda s: s[name].update(step=2.5), "step 2.5 of model.norm.weight"),
                          (lambda s: s[name].pop("step"), "model.norm.weight has no step"),
                          (lambda s: s[name].pop("exp_avg_sq"), "no exp_avg_sq of model.norm")):
        moments = moments_with(state, lambda n: 3)
        change(moments)
        save_dcp({"model": state, "optimizer": {"state": moments}}, tmp_path / "dcp")
        refused_import(run, tmp_path, words)


def test_what_was_frozen_comes_along_with_a_count_of_its_own(run, tmp_path):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    model, _, _ = make_model(tmp_path / "hf", torch.float32, layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        for n, p in model.named_parameters():
            p.requires_grad = not ("embed" in n or "layers.0" in n and step == 0)
        ids = torch.arange(16).view(1, 16)
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, moments = get_state_dict(model, optimizer)
    save_dcp({"model": weights, "optimizer": moments}, tmp_path / "dcp")
    result = run("longhaul", "import", tmp_path / "dcp", "--config", tmp_path / "hf", "--format",
                 "checkpoint", "--out", tmp_path / "out")
    assert "10 tensors had fewer than 3 updates" in result.stdout
    out = tmp_path / "out/step_00000003"
    updates, fewer = saved_counts(out)
    assert updates == 3
    assert fewer == {n: 0 if "embed" in n else 2
                     for n in weights if "embed" in n or "layers.0" in n}
    found = stored_state(out)
    trained = {n: s for n, s in moments["state"].items() if "exp_avg" in s}
    assert set(trained) == set(weights) - {"model.embed_tokens.weight"}
    assert_same(found["exp_avg"], {n: s["exp_avg"] for n, s in trained.items()})
    assert_same(found["weight"], weights)
    run("longhaul", "verify", out)
