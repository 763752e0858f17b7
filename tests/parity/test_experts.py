"""Files of mixtures of experts: experts one by one or together, in any order, or missing; and the
tokens that transformers would choose."""

import json

import pytest
import torch
from models import WITH_EXPERTS, make_model
from programs import later
from safetensors.torch import load_file, save_file
from test_model import GRADIENT_TOLERANCE, LOGITS_TOLERANCE, differences_on, example
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM

NAMES = ["mixtral", *later(*(name for name in WITH_EXPERTS if name != "mixtral"))]
TOGETHER = "model.layers.2.mlp.experts.gate_up_proj"


def save_together(model, path):
    """Saves a model with the names and tensors that transformers has in memory, where experts are
    together."""
    model.save_pretrained(path, save_original_format=False)
    file = path / "model.safetensors"
    assert TOGETHER in load_file(file)
    return file


@pytest.mark.parametrize("name", NAMES)
def test_experts_that_files_hold_together_compute_the_same(run, tmp_path, name):
    model = make_model(name)
    save_together(model, tmp_path / "model")
    found = differences_on(run, tmp_path, model, *example())
    assert found["logits"] <= LOGITS_TOLERANCE, found
    assert found["gradients"] <= GRADIENT_TOLERANCE, found


@pytest.mark.parametrize("name", NAMES)
def test_experts_are_exported_one_by_one(run, tmp_path, name):
    model = make_model(name)
    save_together(model, tmp_path / "together")
    model.save_pretrained(tmp_path / "apart")
    run("longhaul", "export", tmp_path / "together", "--out", tmp_path / "export")
    ours, theirs = (load_file(tmp_path / path / "model.safetensors") for path in ("export", "apart"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "export").state_dict()
    assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_swapped_experts_of_a_file_are_seen(run, tmp_path, name):
    model = make_model(name)
    file = save_together(model, tmp_path / "model")
    tensors = load_file(file)
    tensors[TOGETHER] = tensors[TOGETHER].roll(1, dims=0)
    save_file(tensors, file, metadata={"format": "pt"})
    found = differences_on(run, tmp_path, model, *example())
    assert found["logits"] > 10 * LOGITS_TOLERANCE, found


@pytest.mark.parametrize("name", NAMES)
def test_an_index_in_another_order_has_the_same_experts(run, tmp_path, name):
    model = make_model(name)
    model.save_pretrained(tmp_path / "model", max_shard_size="200KB")
    file = tmp_path / "model/model.safetensors.index.json"
    index = json.loads(file.read_text())
    index["weight_map"] = dict(reversed(index["weight_map"].items()))
    file.write_text(json.dumps(index))
    found = differences_on(run, tmp_path, model, *example())
    assert found["logits"] <= LOGITS_TOLERANCE, found


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_expert_is_named(run, tmp_path, name):
    make_model(name).save_pretrained(tmp_path / "model")
    file = tmp_path / "model/model.safetensors"
    tensors = load_file(file)
    lost = next(key for key in tensors if ".layers.2." in key and ".experts.3." in key)
    del tensors[lost]
    save_file(tensors, file, metadata={"format": "pt"})
    said = run("longhaul", "inspect", tmp_path / "model", check=False)
    assert f"1 missing: {lost} [" in said.stdout + said.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_likeliest_tokens_are_those_of_transformers(run, tmp_path, name):
    model = make_model(name)
    model.save_pretrained(tmp_path / "model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "model/tokenizer.json"))
    ours = json.loads(run("longhaul", "generate", tmp_path / "model", "--prompt", "experts of a kind",
                          "--max-new-tokens", 40, "--dtype", "fp32", "--json").stdout)
    prompt = torch.tensor([ours["prompt_ids"]])
    theirs = model.generate(prompt, max_new_tokens=40, do_sample=False, pad_token_id=0)
    assert len(ours["ids"]) > 4
    assert ours["ids"] == theirs[0, prompt.shape[1]:].tolist()[:len(ours["ids"])]
