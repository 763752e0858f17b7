"""Small models in the shapes of the supported families, made by transformers."""

import json
import pathlib
import re

import torch
import transformers

BASE = dict(
    vocab_size=320,
    hidden_size=96,
    intermediate_size=160,
    num_hidden_layers=3,
    num_attention_heads=6,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    initializer_range=0.05,
    bos_token_id=1,
    eos_token_id=2,
    attn_implementation="eager",
)

TABLE = json.loads((pathlib.Path(__file__).resolve().parents[1] / "families.json").read_text())


def configs():
    """For each small model, its settings: those of BASE with changes, or `only` those that are
    given."""
    for family in TABLE.values():
        for name, model in family.get("parity", {}).items():
            settings = model["config"]
            yield name, {"family": family["class"],
                         **(settings if family["decoder"] else {"only": settings})}


CONFIGS = dict(configs())
WITH_EXPERTS = [name for name, settings in CONFIGS.items() if "num_experts_per_tok" in settings]


def make_model(name, seed=0):
    settings = {**BASE, **CONFIGS[name]}
    family = settings.pop("family")
    settings = settings.pop("only", settings)
    return model_of(getattr(transformers, f"{family}Config")(**settings), seed)


def model_of(config, seed=0):
    torch.manual_seed(seed)
    kind = (transformers.AutoModelForPreTraining if config.model_type == "bert"
            else transformers.AutoModelForCausalLM)
    model = kind.from_config(config, attn_implementation="eager",
                             experts_implementation="eager").to(torch.float32)
    # Weights and biases get other values: a norm weight of one would hide a missing or doubled
    # product, and a bias of zero a missing sum.
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "norm" in key.lower() or ".ln_" in key or key.endswith("bias"):
                value.add_(torch.randn_like(value) * 0.1)
    return model


def as_transformers(config, tensors):
    """This program's tensors with the names and shapes of transformers' model for that config. The
    gradient of a bias of keys is rounding only; in transformers' model it is a part of a larger
    tensor."""
    if config.model_type == "gpt_neox":
        return as_gpt_neox(tensors, config.num_attention_heads)
    if config.model_type in ("mixtral", "qwen3_moe"):
        return with_experts_together(tensors)
    if fused := TABLE[config.model_type].get("fused"):
        return with_parts_together(tensors, fused)
    if config.model_type != "gpt2":
        return dict(tensors)
    found = {}
    for key, value in tensors.items():
        if ".k_proj." in key or ".v_proj." in key:
            continue
        if ".q_proj." in key:
            value = torch.cat([tensors[key.replace("q_proj", f"{part}_proj")] for part in "qkv"])
        if value.dim() == 2 and (".attn." in key or ".mlp." in key):
            value = value.t()
        for here, theirs in (("q_proj", "c_attn"), ("up_proj", "c_fc"), ("down_proj", "c_proj"),
                             ("o_proj", "c_proj")):
            key = key.replace(here, theirs)
        found[key] = value
    return found


def as_gpt_neox(tensors, heads):
    """In transformers' model the queries, keys and values of each head lie side by side."""
    found = {}
    for key, value in tensors.items():
        if ".k_proj." in key or ".v_proj." in key:
            continue
        if ".q_proj." in key:
            parts = [tensors[key.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            by_head = [part.view(heads, -1, *part.shape[1:]) for part in parts]
            value = torch.cat(by_head, dim=1).view(-1, *value.shape[1:])
        for here, theirs in (("q_proj", "query_key_value"), ("o_proj", "dense"),
                             ("up_proj", "dense_h_to_4h"), ("down_proj", "dense_4h_to_h"),
                             ("embed_out", "lm_head")):
            key = key.replace(here, theirs)
        found[key] = value
    return found


def with_parts_together(tensors, fused):
    """In transformers' model the parts that `fused` names lie one behind the other in one
    tensor."""
    found = dict(tensors)
    for together, (first, *_) in fused.items():
        for key in [key for key in tensors if f".{first}." in key]:
            found[key.replace(first, together)] = torch.cat(
                [found.pop(key.replace(first, part)) for part in fused[together]])
    return found


EXPERT = re.compile(r"(model\.layers\.\d+\.)\w+\.experts\.(\d+)\.(\w+)\.weight")
PART = {"w1": "gate", "gate_proj": "gate", "w3": "up", "up_proj": "up", "w2": "down",
        "down_proj": "down"}


def with_experts_together(tensors):
    """In transformers' model all experts of a layer are one tensor, with gate and up of each expert
    one behind the other."""
    found, layers = {}, {}
    for key, value in tensors.items():
        if match := EXPERT.fullmatch(key):
            experts = layers.setdefault(match[1], {})
            experts.setdefault(int(match[2]), {})[PART[match[3]]] = value
        else:
            found[key.replace("block_sparse_moe.gate", "mlp.gate")] = value
    for layer, experts in layers.items():
        of = [experts[i] for i in range(len(experts))]
        found[f"{layer}mlp.experts.gate_up_proj"] = torch.stack(
            [torch.cat([one["gate"], one["up"]]) for one in of])
        found[f"{layer}mlp.experts.down_proj"] = torch.stack([one["down"] for one in of])
    return found


def distance(a, b):
    """||a - b|| / ||b|| in fp64."""
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp_min(1e-30)).item()
