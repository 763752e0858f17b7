"""Small models in the shapes of the supported families, made by transformers."""

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

NEOX = dict(
    vocab_size=320, hidden_size=96, intermediate_size=160, num_hidden_layers=3,
    num_attention_heads=6, max_position_embeddings=512, layer_norm_eps=1e-5,
    initializer_range=0.05)

CONFIGS = {
    "llama2_mha": dict(
        num_key_value_heads=6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    "llama3_gqa": dict(
        num_key_value_heads=2,
        # The token that ends a text, as often: its look-ups have no gradient.
        pad_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    ),
    # The original length is short, so that the scaling acts inside the test's sequences.
    "llama31_scaled": dict(
        num_key_value_heads=2,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "tied": dict(
        num_key_value_heads=3,
        pad_token_id=2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Biases of queries, keys and values; tied, as the small ones are.
    "qwen2": dict(
        family="Qwen2",
        num_key_value_heads=2,
        pad_token_id=7,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    # Heads of another width than hidden / heads, normed; YaRN.
    "qwen3": dict(
        family="Qwen3",
        num_key_value_heads=2,
        pad_token_id=-318,
        head_dim=24,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
                         "original_max_position_embeddings": 128},
    ),
    # A window that is shorter than the test's sequences; heads of another width.
    "mistral": dict(
        family="Mistral",
        num_key_value_heads=2,
        pad_token_id=0,
        head_dim=24,
        sliding_window=40,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Norms before and behind, one plus the weight, GEGLU, windows with a rotation of their own.
    "gemma3": dict(
        family="Gemma3Text",
        num_key_value_heads=2,
        pad_token_id=0,
        head_dim=24,
        sliding_window=40,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        query_pre_attn_scalar=30,
        attention_bias=True,
        tie_word_embeddings=True,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0,
                                            "rope_theta": 1000000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    ),
    # Norms behind the branches alone, those of queries and keys over all heads.
    "olmo2": dict(
        family="Olmo2",
        num_key_value_heads=3,
        pad_token_id=1,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    ),
    # The same, two layers with a window; YaRN where there is none.
    "olmo3": dict(
        family="Olmo3",
        num_key_value_heads=2,
        pad_token_id=1,
        sliding_window=40,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "yarn", "factor": 8.0,
                                            "rope_theta": 500000.0, "attention_factor": 1.2,
                                            "beta_fast": 32.0, "beta_slow": 1.0,
                                            "original_max_position_embeddings": 64},
                         "sliding_attention": {"rope_type": "default",
                                               "rope_theta": 500000.0}},
    ),
    # Embedding, scores, branches and logits multiplied or divided; biases everywhere.
    "granite": dict(
        family="Granite",
        num_key_value_heads=2,
        embedding_multiplier=12.0,
        logits_scaling=2.0,
        residual_multiplier=0.22,
        attention_multiplier=0.1,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # The second layer is not rotated.
    "smollm3": dict(
        family="SmolLM3",
        num_key_value_heads=2,
        pad_token_id=2,
        no_rope_layers=[1, 0, 1],
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 2000000.0},
    ),
    # Experts in every layer, whose weights are normalised; a window that is shorter than the
    # test's sequences.
    "mixtral": dict(
        family="Mixtral",
        num_key_value_heads=2,
        pad_token_id=2,
        sliding_window=40,
        num_local_experts=5,
        num_experts_per_tok=2,
        output_router_logits=True,
        router_aux_loss_coef=0.1,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    # Narrow experts whose weights are not normalised, and a layer without experts.
    "qwen3_moe": dict(
        family="Qwen3Moe",
        num_key_value_heads=2,
        pad_token_id=7,
        head_dim=24,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=48,
        norm_topk_prob=False,
        mlp_only_layers=[1],
        output_router_logits=True,
        router_aux_loss_coef=0.05,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    # Learned positions, LayerNorm, biases, GELU; fused and transposed in the files; tied.
    "gpt2": dict(family="GPT2", only=dict(
        vocab_size=320, n_embd=96, n_head=6, n_layer=3, n_inner=160, n_positions=512,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.05,
        bos_token_id=0, eos_token_id=0)),
    # A quarter of each head rotated, attention and feed-forward side by side; fused by heads.
    "pythia": dict(family="GPTNeoX", only=dict(
        NEOX, rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                               "partial_rotary_factor": 0.25})),
    # One after the other, the tanh form, no biases in the attention, scaled; tied.
    "neox_serial": dict(family="GPTNeoX", only=dict(
        NEOX, use_parallel_residual=False, hidden_act="gelu_new", attention_bias=False,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 20000.0,
                         "partial_rotary_factor": 0.5})),
}


WITH_EXPERTS = [name for name, settings in CONFIGS.items() if "num_experts_per_tok" in settings]


def make_model(name, seed=0):
    settings = {**BASE, **CONFIGS[name]}
    family = settings.pop("family", "Llama")
    settings = settings.pop("only", settings)
    return model_of(getattr(transformers, f"{family}Config")(**settings), seed)


def model_of(config, seed=0):
    torch.manual_seed(seed)
    kind = (transformers.AutoModelForPreTraining if config.model_type == "bert"
            else transformers.AutoModelForCausalLM)
    model = kind.from_config(config, attn_implementation="eager",
                             experts_implementation="eager").to(torch.float32)
    # Norm weights of one hide a missing or doubled product, and biases of zero a missing sum.
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "norm" in key.lower() or ".ln_" in key or key.endswith("bias"):
                value.add_(torch.randn_like(value) * 0.1)
    return model


def as_transformers(config, tensors):
    """Tensors under this program's names and in its shapes, as transformers' model of that
    config has them. There a gradient that is zero but for rounding, that of a bias of keys, is
    part of a larger one."""
    if config.model_type == "gpt_neox":
        return as_gpt_neox(tensors, config.num_attention_heads)
    if config.model_type in ("mixtral", "qwen3_moe"):
        return with_experts_together(tensors)
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
    """Queries, keys and values of a head lie side by side there."""
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


EXPERT = re.compile(r"(model\.layers\.\d+\.)\w+\.experts\.(\d+)\.(\w+)\.weight")
PART = {"w1": "gate", "gate_proj": "gate", "w3": "up", "up_proj": "up", "w2": "down",
        "down_proj": "down"}


def with_experts_together(tensors):
    """All experts of a layer are one tensor there, gate and up of each one behind the other."""
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
