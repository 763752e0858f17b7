"""`longhaul import` of families whose shards are put together by their shapes."""

import json
import re

import nxd_layouts as nxd
import pytest
import torch
from import_helpers import TOKENIZER, assert_same, save_dcp, stored_state, tensors_of
from programs import SOURCE
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

HEADS = 4


@pytest.fixture
def neox(tmp_path):
    """A small GPT-NeoX: (its directory, its state dict)"""
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(
        vocab_size=160, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=HEADS, max_position_embeddings=64, hidden_dropout=0.0))
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.copy_(torch.randn_like(tensor) * 0.1)
    model.config.save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / "tokenizer.json").write_text(TOKENIZER)
    # The files have the old name of the head; newer classes use another name in memory.
    return tmp_path / "hf", {n.replace("lm_head", "embed_out"): t.detach().clone()
                             for n, t in model.state_dict().items()}


def by_parameter(state):
    """The state dict with query_key_value as three projections, as in a checkpoint of longhaul."""
    found = {}
    for name, tensor in state.items():
        if "query_key_value" not in name:
            for old, new in (("attention.dense.", "attention.o_proj."),
                             ("dense_h_to_4h", "up_proj"), ("dense_4h_to_h", "down_proj")):
                name = name.replace(old, new)
            found[name] = tensor
            continue
        for i, part in enumerate("qkv"):
            rows = tensor.view(HEADS, 3, -1, *tensor.shape[1:])[:, i]
            found[name.replace("query_key_value", f"{part}_proj")] = rows.reshape(
                -1, *tensor.shape[1:])
    return found


@pytest.mark.parametrize("tp, layout, xser", [(1, "v2", False), (2, "v2", True), (4, "v1", False)])
def test_shards_of_gpt_neox_come_out_as_the_model_they_were_cut_from(run, tmp_path, neox, tp,
                                                                     layout, xser):
    directory, state = neox
    shards = nxd.shard_neox(state, tp)
    shards[0, tp - 1]["gpt_neox.layers.1.attention.bias"] = torch.ones(1, 1, 8, 8).bool()
    shards[0, 0]["gpt_neox.layers.1.attention.bias"] = torch.ones(1, 1, 8, 8).bool()
    nxd.write_model(tmp_path / "ckpt", shards, layout=layout, xser=xser)
    result = run("longhaul", "import", tmp_path / "ckpt", "--config", directory, "--out",
                 tmp_path / "out")
    assert_same(tensors_of(tmp_path / "out"), state)
    assert ("all bitwise equal" in result.stdout) == (tp > 1)
    again = GPTNeoXForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(again.get_output_embeddings().weight, state["embed_out.weight"])


@pytest.mark.parametrize("tp, dp, groups", [(1, 1, 1), (2, 2, 2)])
def test_moments_of_gpt_neox_come_along_from_zero_shards(run, tmp_path, neox, tp, dp, groups):
    directory, state = neox
    full = {kind: {n: torch.rand(t.shape) for n, t in state.items()}
            for kind in ("exp_avg", "exp_avg_sq")}
    step = tmp_path / "ckpt" / "step_7"
    nxd.write_step(step, nxd.shard_neox(state, tp), step=7)
    nxd.write_zero(step / "optim", nxd.shard_neox(state, tp),
                   {k: nxd.shard_neox(v, tp) for k, v in full.items()}, dp, 7, groups)
    run("longhaul", "import", step, "--config", directory, "--format", "checkpoint", "--out",
        tmp_path / "out")
    found = stored_state(tmp_path / "out" / "step_00000007")
    assert_same(found["weight"], by_parameter(state))
    for kind, moments in full.items():
        assert_same(found[kind], by_parameter(moments))
    run("longhaul", "export", tmp_path / "out", "--out", tmp_path / "hf2")
    assert_same(tensors_of(tmp_path / "hf2"), state)


@pytest.mark.parametrize("folders", [False, True])
def test_a_distributed_checkpoint_of_gpt_neox_comes_out_whole(run, tmp_path, neox, folders):
    directory, state = neox
    moments = {n: {"exp_avg": torch.rand(t.shape), "exp_avg_sq": torch.rand(t.shape),
                   "step": torch.tensor(5.0)} for n, t in state.items()}
    if folders:
        for (_, tp), part in nxd.shard_neox(state, 2).items():
            save_dcp({"model": dict(part)}, tmp_path / "gpt_neox-100steps" / f"tp2-{tp}")
        run("longhaul", "import", tmp_path / "gpt_neox-100steps", "--config", directory, "--out",
            tmp_path / "out")
        assert_same(tensors_of(tmp_path / "out"), state)
        return
    save_dcp({"model": state, "optimizer": {"state": moments}}, tmp_path / "dcp")
    run("longhaul", "import", tmp_path / "dcp", "--config", directory, "--format", "checkpoint",
        "--out", tmp_path / "out")
    found = stored_state(tmp_path / "out" / "step_00000005")
    assert_same(found["weight"], by_parameter(state))
    assert_same(found["exp_avg_sq"], by_parameter({n: m["exp_avg_sq"] for n, m in moments.items()}))


@pytest.mark.parametrize("kv", [2, 8])
@pytest.mark.parametrize("rows", ["blocks", "heads"])
@pytest.mark.parametrize("tp, pp, xser", [(1, 1, False), (2, 2, True)])
def test_shards_with_megatrons_names_come_out_with_their_moments(run, tmp_path, tp, pp, xser,
                                                                 rows, kv):
    config, state = nxd.make_state(tmp_path / "hf", kv=kv)
    kinds = {"weights": state}
    for kind in ("exp_avg", "exp_avg_sq"):
        kinds[kind] = {n: torch.rand(t.shape) for n, t in state.items()}
    shards = {kind: nxd.to_megatron(nxd.shard(tensors, config, tp, pp), config, rows)
              for kind, tensors in kinds.items()}
    held = shards["weights"][0, 0]
    fused = "key_value" if kv < 8 else "query_key_value"
    assert f"language_model.encoder.layers.0.self_attention.{fused}.weight" in held
    # This table is no parameter; NxD-training keeps it in its checkpoints.
    held["language_model.encoder.layers.0.self_attention.core_attention.rotary_emb.inv_freq"] = \
        torch.ones(4)
    step = tmp_path / "step_7"
    nxd.write_step(step, shards["weights"], step=7, xser=xser)
    nxd.write_zero(step / "optim", {p: {n: t for n, t in s.items() if "inv_freq" not in n}
                                    for p, s in shards["weights"].items()},
                   shards, dp=2, step=7, groups=2, xser=xser)
    call = ["longhaul", "import", step, "--config", tmp_path / "hf", "--out"]
    refused = run(*call, tmp_path / "no", check=False)
    assert refused.returncode == 78 and "give --query-key-value blocks (" in refused.stderr
    said = ["--query-key-value", rows]
    run(*call, tmp_path / "out", *said)
    assert_same(tensors_of(tmp_path / "out"), state)
    run(*call, tmp_path / "run", *said, "--format", "checkpoint")
    found = stored_state(tmp_path / "run/step_00000007")
    for kind in ("exp_avg", "exp_avg_sq"):
        assert_same(found[kind], kinds[kind])


def test_shards_that_do_not_fit_a_known_family_are_refused(run, tmp_path, neox):
    directory, state = neox

    def refused(shards, *words, config=directory):
        nxd.write_model(tmp_path / f"ckpt{len(list(tmp_path.iterdir()))}", shards)
        newest = max(tmp_path.glob("ckpt*"), key=lambda path: int(path.name[4:]))
        result = run("longhaul", "import", newest, "--config", config, "--out", tmp_path / "out",
                     check=False)
        assert result.returncode == 78 and all(word in result.stderr for word in words), (
            result.stderr)

    name = "gpt_neox.layers.2.mlp.dense_4h_to_h.weight"
    shards = nxd.shard_neox(state, 2)
    del shards[0, 1][name]
    refused(shards, "tensor-parallel rank 1 has no", name)
    shards = nxd.shard_neox(state, 2)
    shards[0, 0][name] = shards[0, 0][name][:, :-1].clone()
    refused(shards, name, "[64, 47] on each of 2 ranks is no share of [64, 96]")
    refused(nxd.shard_neox({n: t for n, t in state.items() if n != name}, 2), "missing", name)
    refused(nxd.shard_neox(dict(state, other=torch.ones(3)), 2), "'other' [3] is none of the")
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=160, n_embd=64, n_layer=1, n_head=4,
                                      n_positions=32, bos_token_id=0, eos_token_id=1,
                                      resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    gpt2.config.save_pretrained(tmp_path / "gpt2")
    fused = "transformer.h.0.attn.c_attn.weight"
    refused({(0, rank): {n: t.chunk(2, 1)[rank].clone() if n == fused else t
                         for n, t in gpt2.state_dict().items()} for rank in range(2)},
            fused, "one after another", config=tmp_path / "gpt2")


@pytest.mark.parametrize("groups", [1, 2])
def test_moments_come_along_from_the_optimizer_beside_a_state_dict(run, tmp_path, neox, groups):
    """torch.save({"model": ..., "optimizer": optimizer.state_dict()}) writes such a file."""
    directory, state = neox
    plain = [n for n in state if "bias" in n or "norm" in n] if groups == 2 else []
    order = [n for n in state if n not in plain] + plain
    moments = {n: {"step": 9, "exp_avg": torch.rand(state[n].shape),
                   "exp_avg_sq": torch.rand(state[n].shape)} for n in order}
    numbers = list(range(len(order)))
    split = [numbers[:len(order) - len(plain)], numbers[len(order) - len(plain):]]
    torch.save({"model": dict(state, **{"gpt_neox.layers.0.attention.bias": torch.ones(2).bool()}),
                "optimizer": {"state": {i: moments[n] for i, n in enumerate(order)},
                              "param_groups": [{"params": part} for part in split[:groups]]}},
               tmp_path / "ckpt_9.pt")
    result = run("longhaul", "import", tmp_path / "ckpt_9.pt", "--config", directory, "--format",
                 "checkpoint", "--out", tmp_path / "out")
    assert "both moments and the count of 9 updates" in result.stdout
    found = stored_state(tmp_path / "out" / "step_00000009")
    assert_same(found["weight"], by_parameter(state))
    for kind in ("exp_avg", "exp_avg_sq"):
        assert_same(found[kind], by_parameter({n: m[kind] for n, m in moments.items()}))


def test_a_state_dict_without_an_optimizer_makes_no_checkpoint(run, tmp_path, neox):
    directory, state = neox
    torch.save({"model": state}, tmp_path / "weights.pt")
    result = run("longhaul", "import", tmp_path / "weights.pt", "--config", directory, "--format",
                 "checkpoint", "--out", tmp_path / "out", check=False)
    assert result.returncode == 78 and "needs the optimizer's state beside" in result.stderr


def test_the_page_has_the_lines_that_write_the_text_model_of_gemma_3_alone(run, tmp_path):
    from transformers import (Gemma3Config, Gemma3ForCausalLM, Gemma3ForConditionalGeneration,
                              Gemma3TextConfig, SiglipVisionConfig)
    shape = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
    text = Gemma3TextConfig(vocab_size=300, num_key_value_heads=1, head_dim=16,
                            max_position_embeddings=128, **shape)
    vision = SiglipVisionConfig(image_size=28, patch_size=14, **shape)
    both = Gemma3ForConditionalGeneration(Gemma3Config(
        text_config=text.to_dict(), vision_config=vision.to_dict(), mm_tokens_per_image=4,
        image_token_index=299, boi_token_index=298, eoi_token_index=297)).to(torch.bfloat16)
    both.save_pretrained(tmp_path / "both")
    told = run("longhaul", "inspect", tmp_path / "both", check=False)
    assert "longhaul docs importing#the-text-model-of-gemma-3" in told.stdout + told.stderr
    section = (SOURCE / "docs/importing.md").read_text().split("## The text model of Gemma 3")[1]
    (lines,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.S)
    exec(lines.replace("MODEL", str(tmp_path / "both")).replace("TEXT", str(tmp_path / "text")), {})
    found = json.loads(run("longhaul", "inspect", tmp_path / "text", "--json").stdout)
    assert found["complete"]
    ids = torch.arange(16)[None]
    with torch.no_grad():
        alone, whole = (cls.from_pretrained(tmp_path / name, dtype="auto").eval()(input_ids=ids).logits
                        for cls, name in ((Gemma3ForCausalLM, "text"),
                                          (Gemma3ForConditionalGeneration, "both")))
    assert torch.equal(alone, whole)
