"""Checkpoints of other programs, sharded from a whole state dict by plain torch code."""

import collections
import json
import math
import os
import sys
import types

import torch
from import_helpers import TOKENIZER

LAYER = "model.layers.{}."


class TensorReference:
    """torch_xla's stand-in for a tensor that lies in a file of its own."""

    def __init__(self, tid):
        self.tid = tid


def _register(cls, module):
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        name = ".".join(parts[:i])
        sys.modules.setdefault(name, types.ModuleType(name))
    cls.__module__ = module
    cls.__qualname__ = cls.__name__
    setattr(sys.modules[module], cls.__name__, cls)


_register(TensorReference, "torch_xla.utils.serialization")


def stage_of(layer, layers, pp):
    """The stage of a layer. Layers are split evenly, and the last stages get one more of the
    remainder."""
    counts = [layers // pp + (1 if s >= pp - layers % pp else 0) for s in range(pp)]
    for stage, count in enumerate(counts):
        if layer < count:
            return stage
        layer -= count
    raise AssertionError


def query_heads(config, rank, tp, multiplier, order):
    """Which query heads a rank holds. order: tiled (keys A B A B, query heads moved to
    match: the converter for trn1), trn2 (keys the same, query heads left in order: the
    converter for trn2) or repeated (keys A A B B, query heads in order)."""
    heads, kv = config.num_attention_heads, config.num_key_value_heads
    each = heads // tp
    if multiplier == 1 or order != "tiled":
        return list(range(rank * each, (rank + 1) * each))
    # Slot s = i * kv + k holds copy i of key head k and the i-th group of its query heads.
    group = heads // (kv * multiplier)
    slots = kv * multiplier // tp
    found = []
    for slot in range(rank * slots, (rank + 1) * slots):
        i, k = divmod(slot, kv)
        begin = k * (heads // kv) + i * group
        found += range(begin, begin + group)
    return found


def key_heads(config, rank, tp, multiplier, order):
    kv = config.num_key_value_heads
    if order == "repeated":
        slots = [k for k in range(kv) for _ in range(multiplier)]
    else:
        slots = list(range(kv)) * multiplier
    each = len(slots) // tp
    return slots[rank * each:(rank + 1) * each]


def take_heads(tensor, heads, dim, width):
    index = torch.cat([torch.arange(h * width, (h + 1) * width) for h in heads])
    return tensor.index_select(dim, index).clone()


def hardware(order, multiplier=2):
    """The options that tell `longhaul import` how such shards were made."""
    said = {"tiled": ["--hardware", "trn1"], "trn2": ["--hardware", "trn2"], "repeated": []}
    return said[order] if multiplier > 1 else []


def shard(state, config, tp, pp, multiplier=1, order="tiled", qkv="linear", gate_up=True,
          local_numbers=False):
    """{(pp, tp): state dict} as NxD writes it. qkv: linear (weight_q ...), fused
    (weight_qkv), coalesced (qkv_proj.weight) or separate."""
    width = config.hidden_size // config.num_attention_heads
    layers = config.num_hidden_layers
    first = [min(i for i in range(layers) if stage_of(i, layers, pp) == s) for s in range(pp)]
    result = {}
    for stage in range(pp):
        for rank in range(tp):
            out = collections.OrderedDict()

            def part(tensor, dim):
                size = tensor.shape[dim] // tp
                return tensor.narrow(dim, rank * size, size).clone()

            if stage == 0:
                out["model.embed_tokens.weight"] = part(state["model.embed_tokens.weight"], 0)
            for layer in range(layers):
                if stage_of(layer, layers, pp) != stage:
                    continue
                source = LAYER.format(layer)
                name = LAYER.format(layer - first[stage] if local_numbers else layer)
                qh = query_heads(config, rank, tp, multiplier, order)
                kh = key_heads(config, rank, tp, multiplier, order)
                q = take_heads(state[source + "self_attn.q_proj.weight"], qh, 0, width)
                k = take_heads(state[source + "self_attn.k_proj.weight"], kh, 0, width)
                v = take_heads(state[source + "self_attn.v_proj.weight"], kh, 0, width)
                attention = name + "self_attn."
                if qkv == "linear":
                    out[attention + "qkv_proj.weight_q"] = q
                    out[attention + "qkv_proj.weight_k"] = k
                    out[attention + "qkv_proj.weight_v"] = v
                elif qkv == "separate":
                    out[attention + "q_proj.weight"] = q
                    out[attention + "k_proj.weight"] = k
                    out[attention + "v_proj.weight"] = v
                else:
                    key = "qkv_proj.weight_qkv" if qkv == "fused" else "qkv_proj.weight"
                    out[attention + key] = torch.cat([q, k, v])
                out[attention + "o_proj.weight"] = take_heads(
                    state[source + "self_attn.o_proj.weight"], qh, 1, width)
                gate = part(state[source + "mlp.gate_proj.weight"], 0)
                up = part(state[source + "mlp.up_proj.weight"], 0)
                if gate_up:
                    out[name + "mlp.gate_up_proj.weight"] = torch.cat([gate, up])
                else:
                    out[name + "mlp.gate_proj.weight"] = gate
                    out[name + "mlp.up_proj.weight"] = up
                out[name + "mlp.down_proj.weight"] = part(
                    state[source + "mlp.down_proj.weight"], 1)
                for norm in ("input_layernorm", "post_attention_layernorm"):
                    out[name + norm + ".weight"] = state[source + norm + ".weight"].clone()
            if stage == pp - 1:
                out["model.norm.weight"] = state["model.norm.weight"].clone()
                if "lm_head.weight" in state:
                    out["lm_head.weight"] = part(state["lm_head.weight"], 0)
            result[stage, rank] = out
    return result


MEGATRON = (  # in NxD's converter: model_style megatron
    ("model.embed_tokens.weight", "language_model.embedding.word_embeddings.weight"),
    ("model.norm.weight", "language_model.encoder.final_layernorm.weight"),
    ("lm_head.weight", "language_model.output_layer.weight"),
    ("model.layers.", "language_model.encoder.layers."), (".self_attn.", ".self_attention."),
    ("o_proj.weight", "dense.weight"), ("gate_up_proj.weight", "dense_h_to_4h.weight"),
    ("down_proj.weight", "dense_4h_to_h.weight"), ("qkv_proj.weight_q", "query.weight"),
)


def to_megatron(shards, config, rows):
    """Shards of qkv "linear" under Megatron's names. rows: "blocks" has q, k and v one after
    another, as NxD's converter writes them; "heads" has those of each head together, as
    NxD-training computes."""
    width = config.hidden_size // config.num_attention_heads
    grouped = config.num_attention_heads != config.num_key_value_heads

    def fused(matrices):
        if rows == "blocks":
            return torch.cat(matrices)
        heads = [m.reshape(-1, width, m.shape[-1]) for m in matrices]
        return torch.stack(heads, 1).reshape(-1, matrices[0].shape[-1])

    result = {}
    for place, shard_ in shards.items():
        out = collections.OrderedDict()
        for name, tensor in shard_.items():
            for ours, theirs in MEGATRON:
                name = name.replace(ours, theirs)
            attention, _, last = name.rpartition(".self_attention.")
            attention += ".self_attention."
            if last == "query.weight" and not grouped:
                out[attention + "query_key_value.weight"] = [tensor]
            elif last == "qkv_proj.weight_k" and grouped:
                out[attention + "key_value.weight"] = [tensor]
            elif last in ("qkv_proj.weight_k", "qkv_proj.weight_v"):
                out[attention + ("key_value" if grouped else "query_key_value")
                    + ".weight"].append(tensor)
            else:
                out[name] = tensor
        result[place] = collections.OrderedDict(
            (n, fused(t) if isinstance(t, list) else t) for n, t in out.items())
    return result


def shard_neox(state, tp):
    """Shards of a GPT-NeoX with NxD's parallel layers: a rank has rows of column-parallel matrices
    and of their biases (of query_key_value whole heads), and columns of row-parallel ones."""
    def part(name, tensor, rank):
        rows = ("embed_in.weight", "embed_out.weight", "query_key_value.weight",
                "query_key_value.bias", "dense_h_to_4h.weight", "dense_h_to_4h.bias")
        columns = ("attention.dense.weight", "dense_4h_to_h.weight")
        for ends, dim in ((rows, 0), (columns, 1)):
            if name.endswith(ends):
                size = tensor.shape[dim] // tp
                return tensor.narrow(dim, rank * size, size).clone()
        return tensor.clone()

    return {(0, rank): collections.OrderedDict((n, part(n, t, rank)) for n, t in state.items())
            for rank in range(tp)}


def save_xser(value, path, info=False):
    """Writes references to `path`, and each tensor to a file of its own beside it."""
    folder = str(path) + ".tensors"
    os.makedirs(folder)
    tensors = []

    def convert(item):
        if isinstance(item, torch.Tensor):
            tensors.append(item)
            return TensorReference(len(tensors) - 1)
        if isinstance(item, dict):
            return type(item)((k, convert(v)) for k, v in item.items())
        if isinstance(item, (list, tuple)):
            return type(item)(convert(v) for v in item)
        return item

    torch.save(convert(value), path)
    for i, tensor in enumerate(tensors):
        torch.save(tensor, os.path.join(folder, f"tensor_{i}.pt"))
    if info:
        torch.save({i: {"dtype": t.dtype, "shape": t.shape} for i, t in enumerate(tensors)},
                   str(path) + ".info.pt")


def write_model(directory, shards, layout="v2", xser=False, wrap=None):
    """Writes rank files. layout: v1 (tp_rank_..), v2 (dp_rank_00_..) or v3 (with ep_rank)."""
    directory.mkdir(parents=True, exist_ok=True)
    for (pp, tp), state in shards.items():
        value = {wrap: state} if wrap else state
        if layout == "v1" and xser:
            save_xser(value, directory / f"tp_rank_{tp:02d}_pp_rank_{pp:02d}")
        elif layout == "v1":
            folder = directory / f"tp_rank_{tp:02d}_pp_rank_{pp:02d}"
            folder.mkdir()
            torch.save(value, folder / "checkpoint.pt")
        else:
            ep = "_ep_rank_00" if layout == "v3" else ""
            path = directory / f"dp_rank_00{ep}_tp_rank_{tp:02d}_pp_rank_{pp:02d}.pt"
            (save_xser if xser else torch.save)(value, path)


def write_step(directory, shards, step=None, done=True, **options):
    write_model(directory / "model", shards, **options)
    (directory / "checkpoint").write_text("1")
    torch.save({"last_epoch": step}, directory / "scheduler.pt")
    torch.save({"total_steps": step, "batch_idx": 3, "epoch": 0,
                "cli_args": types.SimpleNamespace(lr=1.0).__dict__},
               directory / "user_content.pt")
    if done:
        (directory / "done").write_text("1")


def undecayed(name, groups):
    return groups == 2 and any(part in name for part in ("bias", "norm"))


def write_zero(directory, shards, moments, dp, step, groups=1, masters=None, xser=False,
               info_dtype=torch.float32):
    """Writes the ZeRO-1 shards of every rank. moments: {kind: {(pp, tp): state dict}}."""
    directory.mkdir(parents=True, exist_ok=True)
    for (pp, tp), state in shards.items():
        names = ([n for n in state if not undecayed(n, groups)]
                 + [n for n in state if undecayed(n, groups)])
        count = sum(not undecayed(n, groups) for n in names)
        numbers = [list(range(count)), list(range(count, len(names)))][:groups]

        def cut(tensor, rank):
            size = math.ceil(tensor.shape[0] / dp)
            padded = torch.zeros(size * dp, *tensor.shape[1:], dtype=tensor.dtype)
            padded[: tensor.shape[0]] = tensor
            return padded[rank * size:(rank + 1) * size].clone()

        for rank in range(dp):
            value = {
                "state": {},
                "param_groups": [{"lr": 1e-4, "params": n} for n in numbers],
                "base_state": {
                    i: {"step": torch.tensor(float(step)),
                        "exp_avg": cut(moments["exp_avg"][pp, tp][name], rank),
                        "exp_avg_sq": cut(moments["exp_avg_sq"][pp, tp][name], rank)}
                    for i, name in enumerate(names)},
                "shape_info": {i: list(state[name].shape) for i, name in enumerate(names)},
            }
            if masters:
                value["sharded_master_weights"] = {
                    i: cut(masters[pp, tp][name], rank) for i, name in enumerate(names)}
            path = directory / f"dp_rank_{rank:02d}_tp_rank_{tp:02d}_pp_rank_{pp:02d}.pt"
            (save_xser if xser else torch.save)(value, path)


def make_state(path, dtype=torch.bfloat16, layers=4, heads=8, kv=2, tied=False, vocab=160,
               hidden=64, inner=96, seed=0):
    """Makes a small Llama; writes its config.json and a tokenizer to `path`. Returns (config, state
    dict)."""
    torch.manual_seed(seed)
    fields = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab,
              "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "hidden_act": "silu", "tie_word_embeddings": tied, "torch_dtype": "bfloat16"}
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(fields))
    (path / "tokenizer.json").write_text(TOKENIZER)
    width = hidden // heads
    shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(layers):
        name = LAYER.format(layer)
        shapes[name + "self_attn.q_proj.weight"] = (hidden, hidden)
        shapes[name + "self_attn.k_proj.weight"] = (kv * width, hidden)
        shapes[name + "self_attn.v_proj.weight"] = (kv * width, hidden)
        shapes[name + "self_attn.o_proj.weight"] = (hidden, hidden)
        shapes[name + "mlp.gate_proj.weight"] = (inner, hidden)
        shapes[name + "mlp.up_proj.weight"] = (inner, hidden)
        shapes[name + "mlp.down_proj.weight"] = (hidden, inner)
        shapes[name + "input_layernorm.weight"] = (hidden,)
        shapes[name + "post_attention_layernorm.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    if not tied:
        shapes["lm_head.weight"] = (vocab, hidden)
    state = {name: (torch.randn(shape) * 0.1).to(dtype) for name, shape in shapes.items()}
    return types.SimpleNamespace(**fields), state
