"""Groups that are frozen for some steps and thawed on a resume, against torch.optim.AdamW with the
same parameters frozen: their names are those of Hugging Face, which this program holds in other
tensors; and names that match are listed by `longhaul inspect --names`."""

import json
from functools import lru_cache

import numpy
import pytest
import torch
from datasets import Dataset
from models import CONFIGS, make_model
from safetensors.torch import load_file, save_file
from test_lamb import violations
from test_training import BATCH, LENGTH, STEPS, config_text, make_rows
from transformers import BertConfig, BertForMaskedLM

THAW = 8  # the steps before it are made with the group frozen
ONE = (1, [])
LAYOUTS = {
    "one": (ONE, ONE),
    "tp2_then_dp2_zero3": ((2, ["parallel.tp=2"]),
                           (2, ["parallel.zero=3", "batch.micro_size=1"])),
    "pp2_zero1_then_one": ((4, ["parallel.pp=2", "parallel.zero=1", "batch.micro_size=1"]), ONE),
}
# The gradients of key biases are zero but for rounding. Without this eps, AdamW would make them as
# large as any other.
EPS = 1e-5
# The models in which several of this program's parameters lie in one tensor, and the tensor's name.
FUSED = {"gpt2": "c_attn", "pythia": "query_key_value"}


def is_plain(name):
    return "norm" in name.lower() or ".ln_" in name or name.endswith("bias")


@lru_cache
def twin(name, wrong=None):
    """Losses, norms and last weights of torch's run. `wrong` names a mistake that must be seen as a
    difference."""
    model = make_model(name)
    names = dict(model.named_parameters())
    part = [p for n, p in names.items() if FUSED[name] in n]
    assert part
    optimizer = torch.optim.AdamW(
        [{"params": [p for n, p in names.items() if not is_plain(n)], "weight_decay": 0.1},
         {"params": [p for n, p in names.items() if is_plain(n)], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=EPS)
    rows, losses, norms = make_rows(), [], []
    for step in range(STEPS):
        for p in part:
            p.requires_grad = step >= THAW or wrong == "never frozen"
        batch = rows[step * BATCH:(step + 1) * BATCH]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        if wrong == "the run's count" and step == THAW:
            for p in part:
                optimizer.state[p]["step"] += THAW
        losses.append(loss.item())
    return losses, norms, {n: p.detach().double().numpy().copy() for n, p in names.items()}


def trained(run, tmp_path, name, layouts):
    make_model(name).save_pretrained(tmp_path / "model")
    ids = make_rows().tolist()
    Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * LENGTH] * len(ids),
                       "labels": ids}).save_to_disk(tmp_path / "rows")
    (tmp_path / "run.toml").write_text(config_text(tmp_path, 2, STEPS, LENGTH))
    frozen = f'optimizer.groups=[{{match="*{FUSED[name]}*",frozen=true}}]'
    for (ranks, keys), sets in zip(layouts, ([frozen, f"run.stop_after={THAW}"], [])):
        words = [w for s in [f"optimizer.eps={EPS}", *keys, *sets] for w in ("--set", s)]
        log = run("longhaul", "train", tmp_path / "run.toml", *words, ranks=ranks,
                  env={"OMP_NUM_THREADS": "1"}).stdout
        assert "DAMAGED" not in log
    records = [json.loads(s) for s in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    points = [(r["loss"], r["grad_norm"]) for r in records if "grad_norm" in r]
    run("longhaul", "export", tmp_path / "run", "--out", tmp_path / "export", "--dtype", "fp32")
    weights = {}
    for path in (tmp_path / "export").glob("*.safetensors"):
        weights.update({n.replace("embed_out", "lm_head"): t.double().numpy()
                        for n, t in load_file(path).items()})
    return [p[0] for p in points], [p[1] for p in points], weights


def start_of(name):
    return {n: p.detach().double().numpy().copy() for n, p in make_model(name).named_parameters()}


@pytest.mark.parametrize("name,layout", [("gpt2", "one"), ("gpt2", "tp2_then_dp2_zero3"),
                                         ("pythia", "pp2_zero1_then_one")])
def test_a_group_that_is_thawed_follows_torch(run, tmp_path, name, layout):
    ours = trained(run, tmp_path, name, LAYOUTS[layout])
    assert not violations(ours, twin(name), start_of(name))
    # The comparison must see a wrong count of updates, and a group that was never frozen.
    assert violations(ours, twin(name, "the run's count"), start_of(name))
    assert violations(ours, twin(name, "never frozen"), start_of(name))
    still = twin(name)[2]
    moved = [n for n in still if FUSED[name] in n and n.endswith("weight")
             and numpy.abs(still[n] - start_of(name)[n]).max() > 0]
    assert moved


# ---- names ----

def names_of(run, path):
    return json.loads(run("longhaul", "inspect", path, "--names", "--json").stdout)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in ("llama2_mha", "llama31_scaled")])
def test_both_kinds_of_names_are_listed_for_each_family(run, tmp_path, name):
    model = make_model(name)
    model.save_pretrained(tmp_path / "model")
    listed = names_of(run, tmp_path / "model")
    # transformers 5 holds experts together in memory, and writes them one by one.
    assert {e["together_name"] for e in listed if "together_name" in e} == {
        n for n in model.state_dict() if ".experts." in n}
    in_files = {n for path in (tmp_path / "model").glob("*.safetensors") for n in load_file(path)}
    assert {entry["file_name"] for entry in listed} == in_files
    assert listed == names_of(run, tmp_path / "model/config.json")
    assert len({entry["name"] for entry in listed}) == len(listed) >= len(in_files)
    text = run("longhaul", "inspect", tmp_path / "model", "--names").stdout
    assert len(text.splitlines()) == len(listed)
    assert all(f"{e['name']} " in text and e["file_name"] in text
               and e.get("together_name", "") in text for e in listed)


def test_names_of_bert_are_those_of_its_files_and_match(run, tmp_path):
    config = BertConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2,
                        num_attention_heads=4, intermediate_size=64,
                        max_position_embeddings=64)
    BertForMaskedLM(config).save_pretrained(tmp_path / "model")
    files = {entry["file_name"] for entry in names_of(run, tmp_path / "model")}
    assert files == {n for n, _ in BertForMaskedLM(config).named_parameters()}
    assert any("intermediate" in n for n in files)
    assert any("attention.self.query" in n for n in files)


def test_names_of_a_run_and_of_its_checkpoint_are_the_models(run, tmp_path):
    make_model("gpt2").save_pretrained(tmp_path / "model")
    (tmp_path / "run.toml").write_text(config_text(tmp_path, 2, 1, LENGTH).replace(
        f'[{{ path = "{tmp_path}/rows" }}]', "[{ synthetic = 8 }]"))
    listed = names_of(run, tmp_path / "run.toml")
    run("longhaul", "train", tmp_path / "run.toml")
    assert listed == names_of(run, tmp_path / "model") == names_of(run, tmp_path / "run")
    assert listed == names_of(run, tmp_path / "run/checkpoints/step_00000001")


def test_older_files_without_their_prefix_have_names_that_match(run, tmp_path):
    """openai-community/gpt2 lies on the hub with such names."""
    make_model("gpt2").save_pretrained(tmp_path / "model")
    path = tmp_path / "model/model.safetensors"
    save_file({n.removeprefix("transformer."): t for n, t in load_file(path).items()}, path,
              metadata={"format": "pt"})
    (tmp_path / "run.toml").write_text(config_text(tmp_path, 2, 1, LENGTH).replace(
        f'[{{ path = "{tmp_path}/rows" }}]', "[{ synthetic = 8 }]"))
    run("longhaul", "train", tmp_path / "run.toml", "--set",
        'optimizer.groups=[{match="h.?.attn.c_attn.*",frozen=true}]')
    run("longhaul", "export", tmp_path / "run", "--out", tmp_path / "export", "--dtype", "fp32")
    before, after = load_file(path), load_file(tmp_path / "export/model.safetensors")
    still = [n for n in before if torch.equal(before[n], after["transformer." + n])]
    assert still == sorted(n for n in before if ".attn.c_attn." in n)
