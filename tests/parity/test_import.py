"""`longhaul import`: checkpoints of other programs come out bit for bit as the model that
was sharded, by code of our own (nxd_layouts.py), and open in transformers."""

import json
import pathlib

import nxd_layouts as nxd
import pytest
import torch
from import_helpers import TOKENIZER, assert_same, save_dcp, stored_state, tensors_of
from transformers import BertConfig, BertForPreTraining, LlamaConfig, LlamaForCausalLM


def make_model(path, dtype=torch.bfloat16, layers=4, heads=8, kv=2, **changes):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=160, hidden_size=64, intermediate_size=96,
                         num_hidden_layers=layers, num_attention_heads=heads,
                         num_key_value_heads=kv, max_position_embeddings=64, **changes)
    model = LlamaForCausalLM(config).to(dtype)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.copy_(torch.randn_like(tensor) * 0.1)
    path.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(path)
    model.eval()
    (path / "tokenizer.json").write_text(TOKENIZER)
    state = {n: t.detach().clone() for n, t in model.state_dict().items()
             if not (config.tie_word_embeddings and n == "lm_head.weight")}
    return model, config, state


def assert_same_logits(path, model):
    model.save_pretrained(path.parent / "saved")
    ids = torch.arange(40).view(2, 20)
    found, expected = (LlamaForCausalLM.from_pretrained(p, dtype="auto")
                       for p in (path, path.parent / "saved"))
    with torch.no_grad():
        assert torch.equal(found(ids).logits, expected(ids).logits)


# ---- state dicts ----

@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("form", ["zip", "stream"])
def test_a_state_dict_of_every_pickle_protocol_comes_out(run, tmp_path, form, protocol):
    _, _, state = make_model(tmp_path / "hf", layers=1)
    state["model.layers.0.self_attn.causal_mask"] = torch.ones(4, 4).tril() == 1
    state["model.norm.weight"] = torch.nn.Parameter(state["model.norm.weight"])
    state["model.norm.weight"].partition_dim = 0
    torch.save({"model": state, "raw": b"\xff\x00", "more": bytearray(b"\xfe"), "step": 7,
                "note": "\u00e9" * 300, "seen": {1, 2}}, tmp_path / "m.pt",
               pickle_protocol=protocol, _use_new_zipfile_serialization=form == "zip")
    result = run("longhaul", "import", tmp_path / "m.pt", "--config", tmp_path / "hf", "--out",
                 tmp_path / "out")
    assert "passed over: model.layers.0.self_attn.causal_mask (no parameter)" in result.stdout
    del state["model.layers.0.self_attn.causal_mask"]
    assert_same(tensors_of(tmp_path / "out"), {n: t.detach() for n, t in state.items()})


@pytest.mark.parametrize("form", ["zip", "stream"])
@pytest.mark.parametrize("nested", [None, "model", "state_dict", "module"])
def test_a_state_dict_comes_out_bit_for_bit(run, tmp_path, form, nested):
    model, _, state = make_model(tmp_path / "hf")
    value = model.state_dict() if nested is None else {nested: state, "step": 7}
    torch.save(value, tmp_path / "m.pt", _use_new_zipfile_serialization=form == "zip")
    result = run("longhaul", "import", tmp_path / "m.pt", "--config", tmp_path / "hf", "--out",
                 tmp_path / "out")
    assert_same(tensors_of(tmp_path / "out"), state)
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert "39 tensors" in result.stdout and "Did not come along: optimizer" in result.stdout
    if nested is None:
        assert_same_logits(tmp_path / "out", model)


def test_views_strides_and_all_dtypes_are_read_as_torch_reads_them(run, tmp_path):
    model, config, _ = make_model(tmp_path / "hf", torch.float32)
    big = torch.randn(200, 64)
    state = model.state_dict()
    state["model.embed_tokens.weight"] = big[7:167]                 # part of a storage
    state["lm_head.weight"] = torch.randn(64, 160).t()              # transposed
    state["model.norm.weight"] = torch.randn(64, 3)[:, 1]           # every third element
    state["model.layers.0.mlp.up_proj.weight"] = torch.randn(96, 64, dtype=torch.float64)
    state["model.layers.0.mlp.gate_proj.weight"] = torch.randn(96, 64).half()
    state["model.layers.1.self_attn.q_proj.weight"] = torch.nn.Parameter(torch.randn(64, 64))
    for name in ("model.layers.2.self_attn.q_proj.weight", "model.layers.2.input_layernorm.weight"):
        state[name] = state[name].clone()
        state[name].tensor_model_parallel = True                   # an attribute, as NxD has
    state["model.layers.3.self_attn.q_proj.weight"] = torch.nn.Parameter(torch.randn(64, 64))
    state["model.layers.3.self_attn.q_proj.weight"].partition_dim = 0
    torch.save(state, tmp_path / "m.pt")
    run("longhaul", "import", tmp_path / "m.pt", "--config", tmp_path / "hf" / "config.json",
        "--out", tmp_path / "out")
    assert_same(tensors_of(tmp_path / "out"), state)
    assert not (tmp_path / "out" / "tokenizer.json").exists()


def test_sharded_bin_files_and_the_config_beside_them_are_found(run, tmp_path):
    model, _, state = make_model(tmp_path / "hf")
    names = list(state)
    files = {"pytorch_model-00001-of-00002.bin": names[:20],
             "pytorch_model-00002-of-00002.bin": names[20:]}
    for file, part in files.items():
        torch.save({n: state[n] for n in part}, tmp_path / "hf" / file)
    (tmp_path / "hf" / "pytorch_model.bin.index.json").write_text(json.dumps(
        {"metadata": {"total_size": 0}, "weight_map": {n: f for f, p in files.items() for n in p}}))
    run("longhaul", "import", tmp_path / "hf", "--out", tmp_path / "out", "--dtype", "fp32",
        "--shard-size", "100KB")
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 3
    assert_same(tensors_of(tmp_path / "out"), {n: t.float() for n, t in state.items()})


def test_bert_gets_the_names_of_hugging_face_and_its_moments_come_along(run, tmp_path):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=90, hidden_size=32, num_hidden_layers=2,
                        num_attention_heads=4, intermediate_size=48,
                        max_position_embeddings=32)
    model = BertForPreTraining(config).eval()
    config.save_pretrained(tmp_path / "hf")
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias",
           "LayerNorm.beta").replace("intermediate.dense.", "intermediate.dense_act."): t
           for n, t in model.state_dict().items()}
    old["bert.embeddings.mask"] = torch.arange(32) % 3 == 0
    old["bert.embeddings.position_ids"] = torch.arange(32).expand((1, -1))
    # The parameter groups are those of the source's training script.
    plain = [n for n, _ in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    order = [n for n, _ in model.named_parameters() if n not in plain] + plain
    moments = {n: {"step": 4, "exp_avg": torch.rand(model.state_dict()[n].shape),
                   "exp_avg_sq": torch.rand(model.state_dict()[n].shape)} for n in order}
    numbers = list(range(len(order)))
    torch.save({"model": old, "scheduler": {"last_epoch": 4}, "files": [1, ["a.hdf5"]],
                "optimizer": {"state": {i: moments[n] for i, n in enumerate(order)},
                              "param_groups": [{"params": numbers[:-len(plain)]},
                                               {"params": numbers[-len(plain):]}]}},
               tmp_path / "ckpt_4.pt")
    result = run("longhaul", "import", tmp_path / "ckpt_4.pt", "--config", tmp_path / "hf",
                 "--out", tmp_path / "out")
    assert "under 'model'" in result.stdout and "scheduler" in result.stdout
    assert "passed over: bert.embeddings.mask (no parameter)" in result.stdout
    again = BertForPreTraining.from_pretrained(tmp_path / "out").eval()
    ids = torch.arange(24).view(2, 12)
    with torch.no_grad():
        assert torch.equal(again(ids).prediction_logits, model(ids).prediction_logits)
        assert torch.equal(again(ids).seq_relationship_logits,
                           model(ids).seq_relationship_logits)
    run("longhaul", "import", tmp_path / "ckpt_4.pt", "--config", tmp_path / "hf", "--format",
        "checkpoint", "--out", tmp_path / "checkpoint")
    found = stored_state(tmp_path / "checkpoint" / "step_00000004")
    assert len(found["exp_avg"]) == len(order)
    for ours, theirs in (("attention.q_proj.weight", "attention.self.query.weight"),
                         ("attention.output.LayerNorm.bias", "attention.output.LayerNorm.bias"),
                         ("down_proj.weight", "output.dense.weight")):
        ours, theirs = (f"bert.encoder.layer.1.{name}" for name in (ours, theirs))
        assert torch.equal(found["exp_avg_sq"][ours], moments[theirs]["exp_avg_sq"])
    for name in ("cls.predictions.bias", "bert.pooler.dense.weight",
                 "bert.embeddings.word_embeddings.weight"):
        assert torch.equal(found["exp_avg"][name], moments[name]["exp_avg"])


# ---- neuronx-distributed ----

CASES = [
    # The columns are tp, pp, multiplier, order, qkv, gate_up, layout, xser and wrap.
    (1, 1, 1, "tiled", "linear", True, "v2", False, None),
    (2, 1, 1, "tiled", "linear", True, "v2", True, None),
    (4, 2, 2, "tiled", "linear", True, "v2", True, None),
    (4, 2, 2, "repeated", "linear", True, "v2", False, None),
    (4, 1, 4, "tiled", "linear", True, "v3", False, None),
    (8, 1, 4, "tiled", "fused", True, "v2", True, None),
    (4, 1, 2, "tiled", "fused", True, "v2", False, None),
    (4, 2, 2, "trn2", "linear", True, "v2", True, None),
    (8, 1, 4, "trn2", "linear", True, "v3", False, None),
    (8, 1, 4, "trn2", "fused", True, "v2", False, None),
    (4, 1, 2, "trn2", "fused", True, "v2", True, None),
    (2, 1, 2, "trn2", "separate", True, "v2", False, None),
    (4, 1, 2, "repeated", "fused", False, "v1", False, "model"),
    (2, 2, 1, "tiled", "separate", False, "v1", True, "model"),
    (2, 1, 1, "tiled", "coalesced", True, "v2", False, None),
]


@pytest.mark.parametrize("tp,pp,multiplier,order,qkv,gate_up,layout,xser,wrap", CASES)
def test_shards_come_out_as_the_model_they_were_cut_from(
        run, tmp_path, tp, pp, multiplier, order, qkv, gate_up, layout, xser, wrap):
    model, config, state = make_model(tmp_path / "hf", kv=8 if qkv == "coalesced" else 2,
                                      layers=5)
    shards = nxd.shard(state, config, tp, pp, multiplier, order, qkv, gate_up)
    nxd.write_model(tmp_path / "ckpt" / "model", shards, layout, xser, wrap)
    result = run("longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
                 tmp_path / "out", *nxd.hardware(order, multiplier))
    assert_same(tensors_of(tmp_path / "out"), state)
    assert f"tp {tp} pp {pp}" in result.stdout
    assert ("xser" in result.stdout) == xser
    if multiplier > 1:
        lie = "repeated" if order == "repeated" else "tiled"
        assert f"held {multiplier} times in {lie} order" in result.stdout
        assert "all bitwise equal" in result.stdout
    if xser and layout == "v2":
        assert_same_logits(tmp_path / "out", model)


def test_stages_that_number_their_layers_from_zero_are_told_apart(run, tmp_path):
    _, config, state = make_model(tmp_path / "hf", layers=5)
    shards = nxd.shard(state, config, 2, 3, local_numbers=True)
    nxd.write_model(tmp_path / "ckpt", shards)
    run("longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
        tmp_path / "out")
    assert_same(tensors_of(tmp_path / "out"), state)


def test_a_tied_model_with_a_copy_of_the_head_on_the_last_stage(run, tmp_path):
    model, config, state = make_model(tmp_path / "hf", tie_word_embeddings=True)
    with_head = dict(state, **{"lm_head.weight": state["model.embed_tokens.weight"]})
    nxd.write_model(tmp_path / "ckpt", nxd.shard(with_head, config, 2, 2))
    run("longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
        tmp_path / "out")
    assert_same(tensors_of(tmp_path / "out"), state)
    assert_same_logits(tmp_path / "out", model)


def test_copies_that_drifted_apart_are_counted_and_the_first_is_kept(run, tmp_path):
    _, config, state = make_model(tmp_path / "hf")
    shards = nxd.shard(state, config, 4, 1, 2, "tiled")
    shards[0, 3]["model.layers.1.self_attn.qkv_proj.weight_k"][2, 5] += 0.25
    shards[0, 1]["model.norm.weight"][3] += 0.25
    nxd.write_model(tmp_path / "ckpt", shards)
    result = run("longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
                 tmp_path / "out", "--hardware", "trn1")
    assert "2 of " in result.stdout and "in 2 elements; the first is kept" in result.stdout
    assert_same(tensors_of(tmp_path / "out"), state)


def test_fused_shards_that_lost_query_heads_are_refused_with_the_cause(run, tmp_path):
    """NxD's converter writes such shards for trn1 where tp is 4 and 2 key heads are repeated 4
    times."""
    _, config, state = make_model(tmp_path / "hf")
    shards = nxd.shard(state, config, 4, 1, 4, "tiled", "fused")
    for part in shards.values():
        for name in [n for n in part if n.endswith("weight_qkv")]:
            part[name] = torch.cat([part[name][:8], part[name][16:]])
    nxd.write_model(tmp_path / "ckpt", shards)
    refused = run("longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
                  tmp_path / "out", "--hardware", "trn1", check=False)
    assert refused.returncode == 78
    assert "shape [40, 64] on rank 0 of 4" in refused.stderr
    assert "loses query heads where tp is not the key heads times m" in refused.stderr


def test_an_order_that_copies_do_not_tell_must_be_said(run, tmp_path):
    _, config, state = make_model(tmp_path / "hf")
    for name in state:
        if "k_proj" in name:
            state[name].zero_()
    nxd.write_model(tmp_path / "ckpt", nxd.shard(state, config, 4, 1, 2, "tiled"))
    call = ["longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
            tmp_path / "out"]
    refused = run(*call, check=False)
    assert refused.returncode == 78
    assert "give --hardware trn1, or --hardware trn2 with" in refused.stderr
    refused = run(*call, "--hardware", "trn2", check=False)
    assert refused.returncode == 78 and "--kv-order tiled" in refused.stderr
    assert not (tmp_path / "out").exists()
    result = run(*call, "--hardware", "trn1")
    assert "tiled order (as the options say)" in result.stdout
    assert_same(tensors_of(tmp_path / "out"), state)


@pytest.mark.parametrize("qkv", ["linear", "fused"])
def test_shards_of_trn1_and_trn2_are_not_guessed_apart(run, tmp_path, qkv):
    _, config, state = make_model(tmp_path / "hf")
    for order in ("tiled", "trn2"):
        nxd.write_model(tmp_path / order, nxd.shard(state, config, 4, 1, 2, order, qkv))
        call = ["longhaul", "import", tmp_path / order, "--config", tmp_path / "hf", "--out"]
        refused = run(*call, tmp_path / "no", check=False)
        assert refused.returncode == 78
        assert "give --hardware trn1 or --hardware trn2" in refused.stderr
        assert not (tmp_path / "no").exists()
        result = run(*call, tmp_path / f"{order}-out", *nxd.hardware(order))
        assert ("moved back" in result.stdout) == (order == "tiled")
        assert_same(tensors_of(tmp_path / f"{order}-out"), state)


def test_a_wrong_order_is_refused_where_the_copies_tell(run, tmp_path):
    _, config, state = make_model(tmp_path / "hf")
    nxd.write_model(tmp_path / "ckpt", nxd.shard(state, config, 4, 1, 2, "repeated"))
    refused = run("longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
                  tmp_path / "out", "--kv-order", "tiled", check=False)
    assert refused.returncode == 78 and "stored repeated" in refused.stderr
    refused = run("longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
                  tmp_path / "out", "--hardware", "trn1", check=False)
    assert refused.returncode == 78 and "--hardware trn1 disagrees with the files" in refused.stderr


def test_of_several_steps_the_newest_finished_one_is_taken(run, tmp_path):
    make_model(tmp_path / "hf")
    states = {}
    for step in (9, 10, 11):
        torch.manual_seed(step)
        _, config, state = make_model(tmp_path / "hf")
        state["model.norm.weight"] += step
        states[step] = state
        nxd.write_step(tmp_path / "ckpt" / f"step_{step}", nxd.shard(state, config, 2, 1),
                       step=step, done=step < 11)
    result = run("longhaul", "import", tmp_path / "ckpt", "--config", tmp_path / "hf", "--out",
                 tmp_path / "out")
    assert_same(tensors_of(tmp_path / "out"), states[10])
    assert "step_11 is unfinished" in result.stdout
    assert "total_steps 10 epoch 0 batch_idx 3" in result.stdout
    refused = run("longhaul", "import", tmp_path / "ckpt" / "step_11", "--config",
                  tmp_path / "hf", "--out", tmp_path / "no", check=False)
    assert refused.returncode == 78 and "unfinished" in refused.stderr


# ---- optimizer state ----

@pytest.mark.parametrize("tp,pp,dp,groups,masters,xser,order",
                         [(1, 1, 1, 1, False, False, "tiled"), (4, 2, 2, 1, True, True, "tiled"),
                          (2, 2, 3, 2, False, False, "tiled"), (4, 1, 2, 1, True, False, "trn2")])
def test_moments_come_along_from_zero_shards(run, tmp_path, tp, pp, dp, groups, masters, xser,
                                             order):
    _, config, state = make_model(tmp_path / "hf")
    multiplier = max(1, tp // 2)

    def shards(of):
        return nxd.shard(of, config, tp, pp, multiplier, order)

    full = {kind: {n: torch.rand(t.shape) for n, t in state.items()}
            for kind in ("exp_avg", "exp_avg_sq")}
    master = {n: t.float() + 1e-4 * torch.rand(t.shape) for n, t in state.items()}
    step = tmp_path / "ckpt" / "step_40"
    nxd.write_step(step, shards(state), step=40, xser=xser)
    nxd.write_zero(step / "optim", shards(state), {k: shards(v) for k, v in full.items()}, dp,
                   40, groups, shards(master) if masters else None, xser)
    said = nxd.hardware(order, multiplier)
    result = run("longhaul", "import", step, "--config", tmp_path / "hf", "--format",
                 "checkpoint", "--out", tmp_path / "out", *said)
    assert "both moments and the count of 40 updates" in result.stdout
    found = stored_state(tmp_path / "out" / "step_00000040")
    assert_same(found["exp_avg"], full["exp_avg"])
    assert_same(found["exp_avg_sq"], full["exp_avg_sq"])
    assert_same(found["weight"],
                master if masters else {n: t.float() for n, t in state.items()})
    run("longhaul", "verify", tmp_path / "out" / "step_00000040")
    run("longhaul", "export", tmp_path / "out", "--out", tmp_path / "hf3")
    assert_same(tensors_of(tmp_path / "hf3"), found["weight"])
    hf = run("longhaul", "import", step, "--config", tmp_path / "hf", "--out", tmp_path / "hf2",
             *said)
    assert "--format checkpoint imports it" in hf.stdout
    assert_same(tensors_of(tmp_path / "hf2"), state)


RUN = """
[run]
dir = "{dir}"
steps = 42
device = "cpu"
threads = 1
[model]
config = "{model}"
[data]
seq_len = 16
train = [{{ synthetic = 100 }}]
[batch]
global_size = 2
[optimizer]
lr = 1e-3
[checkpoint]
every = 0
resume = "{resume}"
"""


def test_training_goes_on_from_an_imported_checkpoint(run, tmp_path):
    _, config, state = make_model(tmp_path / "hf", torch.float32)
    moments = {k: {n: torch.rand(t.shape) * 1e-3 for n, t in state.items()}
               for k in ("exp_avg", "exp_avg_sq")}
    step = tmp_path / "ckpt" / "step_40"
    nxd.write_step(step, nxd.shard(state, config, 2, 1), step=40)
    nxd.write_zero(step / "optim", nxd.shard(state, config, 2, 1),
                   {k: nxd.shard(v, config, 2, 1) for k, v in moments.items()}, 2, 40)
    run("longhaul", "import", step, "--config", tmp_path / "hf", "--format", "checkpoint",
        "--out", tmp_path / "out")
    (tmp_path / "hf" / "tokenizer.json").unlink()
    toml = tmp_path / "run.toml"
    toml.write_text(RUN.format(dir=tmp_path / "run", model=tmp_path / "hf",
                               resume=tmp_path / "out" / "step_00000040"))
    run("longhaul", "train", toml)
    records = [json.loads(line)
               for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if "loss" in r] == [41, 42]
    assert "was imported" in (tmp_path / "run" / "log.txt").read_text()


def test_optimizer_state_that_does_not_map_is_refused_and_the_weights_still_come(run, tmp_path):
    _, config, state = make_model(tmp_path / "hf")
    shards = nxd.shard(state, config, 1, 1)
    moments = {k: nxd.shard({n: torch.rand(t.shape) for n, t in state.items()}, config, 1, 1)
               for k in ("exp_avg", "exp_avg_sq")}
    step = tmp_path / "step_3"
    nxd.write_step(step, shards, step=3)
    name = next(iter(shards[0, 0]))
    short = {key: type(value)((n, t) for n, t in value.items() if n != name)
             for key, value in shards.items()}
    nxd.write_zero(step / "optim", short, moments, 1, 3)
    call = ["longhaul", "import", step, "--config", tmp_path / "hf", "--out", tmp_path / "out"]
    refused = run(*call, "--format", "checkpoint", check=False)
    assert refused.returncode == 78 and "do not fit the 35 parameters" in refused.stderr
    assert not (tmp_path / "out").exists()
    run(*call)
    assert_same(tensors_of(tmp_path / "out"), state)


# ---- torch.distributed.checkpoint ----

@pytest.mark.parametrize("prefix", ["", "model", "app.model"])
def test_a_distributed_checkpoint_comes_out_whole(run, tmp_path, prefix):
    model, _, state = make_model(tmp_path / "hf")
    value = state
    for key in reversed(prefix.split(".") if prefix else []):
        value = {key: value, "epoch": 3} if key == "model" else {key: value}
    save_dcp(value, tmp_path / "dcp")
    result = run("longhaul", "import", tmp_path / "dcp", "--config", tmp_path / "hf", "--out",
                 tmp_path / "out")
    assert "torch.distributed.checkpoint" in result.stdout
    assert_same(tensors_of(tmp_path / "out"), state)


def test_moments_come_along_from_a_distributed_checkpoint(run, tmp_path):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    model, _, _ = make_model(tmp_path / "hf", torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        model(torch.arange(16).view(1, 16), labels=torch.arange(16).view(1, 16)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, state = get_state_dict(model, optimizer)
    save_dcp({"model": weights, "optimizer": state, "total_steps": 3}, tmp_path / "dcp")
    run("longhaul", "import", tmp_path / "dcp", "--config", tmp_path / "hf", "--format",
        "checkpoint", "--out", tmp_path / "out")
    found = stored_state(tmp_path / "out" / "step_00000003")
    assert_same(found["weight"], weights)
    assert_same(found["exp_avg"], {n: s["exp_avg"] for n, s in state["state"].items()})
    assert_same(found["exp_avg_sq"], {n: s["exp_avg_sq"] for n, s in state["state"].items()})


class App:
    """An object that torch.distributed.checkpoint calls stateful."""

    def __init__(self, model, optimizer, key):
        self.parts = model, optimizer, key

    def state_dict(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict
        model, optimizer, key = self.parts
        weights, state = get_state_dict(model, optimizer)
        return {"model": weights, key: state, "mask": torch.ones(3, dtype=torch.bool)}

    def load_state_dict(self, state):
        raise NotImplementedError


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("key", ["optimizer", "optim", None])
def test_moments_of_tied_models_and_below_app_come_along(run, tmp_path, tied, key):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    model, _, state = make_model(tmp_path / "hf", torch.float32, layers=2,
                                 tie_word_embeddings=tied)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        model(torch.arange(16).view(1, 16), labels=torch.arange(16).view(1, 16)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, moments = get_state_dict(model, optimizer)
    save_dcp({"app": App(model, optimizer, key)} if key else
             {"model": weights, "optimizer": moments}, tmp_path / "dcp")
    result = run("longhaul", "import", tmp_path / "dcp", "--config", tmp_path / "hf", "--format",
                 "checkpoint", "--out", tmp_path / "out")
    assert "both moments and the count of 2 updates" in result.stdout
    found = stored_state(tmp_path / "out" / "step_00000002")
    assert_same(found["weight"], {n: weights[n] for n in state})
    for kind in ("exp_avg", "exp_avg_sq"):
        assert_same(found[kind], {n: moments["state"][n][kind] for n in state})
    run("longhaul", "import", tmp_path / "dcp", "--config", tmp_path / "hf", "--out",
        tmp_path / "hf2")
    assert_same(tensors_of(tmp_path / "hf2"), {n: weights[n] for n in state})


def shard_worker(rank, path, rendezvous):
    """One of two ranks that save rows of every matrix."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    state = torch.load(pathlib.Path(path) / "state.pt")
    dcp.save({"model": {n: distribute_tensor(t, mesh, [Shard(0)]) for n, t in state.items()}},
             checkpoint_id=str(pathlib.Path(path) / "dcp"))
    dist.destroy_process_group()


def test_chunks_of_two_ranks_are_put_together(run, tmp_path):
    _, _, state = make_model(tmp_path / "hf", layers=2)
    torch.save(state, tmp_path / "state.pt")
    torch.multiprocessing.spawn(shard_worker, (str(tmp_path), str(tmp_path / "rendezvous")),
                                nprocs=2)
    assert len(list((tmp_path / "dcp").glob("*.distcp"))) == 2
    run("longhaul", "import", tmp_path / "dcp", "--config", tmp_path / "hf", "--out",
        tmp_path / "out")
    assert_same(tensors_of(tmp_path / "out"), state)


def test_folders_of_tensor_parallel_ranks_are_merged(run, tmp_path):
    _, config, state = make_model(tmp_path / "hf")
    for (_, tp), part in nxd.shard(state, config, 2, 1, qkv="separate", gate_up=False).items():
        save_dcp({"model": dict(part)}, tmp_path / "llama_v2-100steps" / f"tp2-{tp}")
    result = run("longhaul", "import", tmp_path / "llama_v2-100steps", "--config",
                 tmp_path / "hf", "--out", tmp_path / "out")
    assert "of SMP, tp 2" in result.stdout
    assert_same(tensors_of(tmp_path / "out"), state)


# ---- what is refused ----

def test_what_is_missing_or_of_another_form_is_named(run, tmp_path):
    _, config, state = make_model(tmp_path / "hf")

    def refused(source, *parts, config_dir="hf"):
        result = run("longhaul", "import", source, "--config", tmp_path / config_dir, "--out",
                     tmp_path / "out", check=False)
        assert result.returncode == 78, result.stderr
        for part in parts:
            assert part in result.stderr
        assert not (tmp_path / "out").exists()

    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "consolidated.00.pth").write_bytes(b"x")
    refused(tmp_path / "meta", "Meta's own form", "Hugging Face files")
    refused(tmp_path / "meta" / "consolidated.00.pth", "Meta's own form")
    refused(tmp_path / "nothing.pt", "no such file")
    shards = nxd.shard(state, config, 4, 2, 2)
    nxd.write_model(tmp_path / "ckpt", shards)
    (tmp_path / "ckpt" / "dp_rank_00_tp_rank_02_pp_rank_01.pt").unlink()
    refused(tmp_path / "ckpt", "7 of 8 rank files", "tp 2 pp 1")
    (tmp_path / "experts").mkdir()
    for rank in (0, 1):
        torch.save({}, tmp_path / f"experts/dp_rank_00_ep_rank_0{rank}_tp_rank_00_pp_rank_00.pt")
    refused(tmp_path / "experts", "experts that ep_rank 1 has", "import the Hugging Face files")
    make_model(tmp_path / "other", layers=3)
    torch.save(state, tmp_path / "m.pt")
    refused(tmp_path / "m.pt", "9 unexpected", config_dir="other")
    del state["model.layers.2.mlp.up_proj.weight"]
    torch.save(state, tmp_path / "m.pt")
    refused(tmp_path / "m.pt", "1 missing", "layers.2.mlp.up_proj.weight")
    state["surprise.weight"] = torch.zeros(2)
    torch.save(state, tmp_path / "m.pt")
    refused(tmp_path / "m.pt", "surprise.weight")
    torch.save([1, 2], tmp_path / "m.pt")
    refused(tmp_path / "m.pt", "no state dict")
    no_config = run("longhaul", "import", tmp_path / "m.pt", "--out", tmp_path / "out",
                    check=False)
    assert no_config.returncode == 78 and "--config" in no_config.stderr
