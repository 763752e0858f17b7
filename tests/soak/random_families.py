"""Random small models of every family against transformers, from a config.json as some version
may have written it, with padding tokens that occur: logits, first gradients, AdamW steps, exports."""

import json

import test_bert_model
import torch
import transformers
from bert_models import fields_of
from bert_rows import VOCABULARY, make_examples
from models import model_of
from random_models import POSITIONS, check_export, draw_rope, draw_sizes, draw_tokens
from test_model import GRADIENT_TOLERANCE, LOGITS_TOLERANCE, differences_on
from test_training import BATCH, TOLERANCE, curve_on, torch_curve, worst

BY_KIND = ["Gemma3Text", "Olmo3"]  # a rotation for each kind of layer
DECODERS = ["Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe", "Olmo2", "Granite", "SmolLM3",
            "Gemma2", "Phi3", *BY_KIND]
# Values that a family's class takes for absent fields, where they differ from those of most
# families.
OWN_DEFAULTS = {"olmo2": {"pad_token_id": 1},
                "mixtral": {"num_key_value_heads": 8, "num_experts_per_tok": 2},
                "qwen3_moe": {"num_key_value_heads": 4, "norm_topk_prob": False, "mlp_only_layers": []},
                "olmo3": {"pad_token_id": 1},
                "phi3": {"pad_token_id": 32000},
                "gemma2": {"pad_token_id": 0, "tie_word_embeddings": True, "num_key_value_heads": 4,
                           "head_dim": 256, "query_pre_attn_scalar": 256,
                           "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
                "gemma3_text": {"pad_token_id": 0, "tie_word_embeddings": True,
                                "num_key_value_heads": 4, "head_dim": 256},
                "smollm3": {"pad_token_id": 128004, "tie_word_embeddings": True,
                            "num_key_value_heads": 4}}


def draw_gelu(rng):
    return rng.choice(["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"])


def draw_experts(rng, family, layers):
    experts, normalised = rng.randint(1, 7), family == "Mixtral" or rng.random() < 0.5
    # With one chosen expert the normalised weight is 1, so the router's gradient is rounding only.
    least = min(2, experts) if normalised else 1
    drawn = dict(num_local_experts=experts, num_experts_per_tok=rng.randint(least, experts))
    if family == "Qwen3Moe":
        drawn.update(moe_intermediate_size=rng.randint(1, 100), norm_topk_prob=normalised,
                     decoder_sparse_step=rng.choice([1, 1, 2]), attention_bias=rng.random() < 0.3,
                     mlp_only_layers=[i for i in range(layers) if rng.random() < 0.3])
    return drawn


def draw_decoder(rng, family):
    model = dict(draw_sizes(rng), rope_parameters=draw_rope(rng), max_position_embeddings=POSITIONS)
    if family in BY_KIND:
        kinds = {kind: draw_rope(rng) for kind in ("full_attention", "sliding_attention")}
        kinds["sliding_attention"] = rng.choice([
            kinds["sliding_attention"], {"rope_type": "default", "rope_theta": 500000.0}])
        kinds["full_attention"]["rope_theta"] = rng.choice(
            [kinds["full_attention"]["rope_theta"], 500000.0])
        model.update(rope_parameters=kinds, sliding_window=rng.choice([2, 7, 64]),
                     layer_types=[rng.choice(list(kinds)) for _ in range(model["num_hidden_layers"])])
    if family in ("Gemma2", "Gemma3Text"):
        model.update(query_pre_attn_scalar=rng.choice([16, 99, 256]))
    if family == "Gemma2":
        kinds = ("full_attention", "sliding_attention")
        model.update(sliding_window=rng.choice([2, 7, 64]),
                     attn_logit_softcapping=rng.choice([None, 2.0, 50.0]),
                     final_logit_softcapping=rng.choice([None, 2.0, 30.0]),
                     layer_types=[rng.choice(kinds) for _ in range(model["num_hidden_layers"])])
    if family == "Phi3":
        model["rope_parameters"] = {
            "rope_type": "default", "rope_theta": model["rope_parameters"]["rope_theta"],
            "partial_rotary_factor": rng.choice(
                [part for part in (0.25, 0.5, 1.0) if model["head_dim"] * part % 2 == 0])}
    if family in ("Gemma2", "Gemma3Text", "Olmo2", "Olmo3", "Phi3", "SmolLM3"):
        model.update(bos_token_id=0, eos_token_id=0)  # the class's own may be past these vocabularies
    if family in ("Mixtral", "Qwen3Moe"):
        model.update(draw_experts(rng, family, model["num_hidden_layers"]))
    if family in ("Mistral", "Mixtral", "Phi3"):
        model["sliding_window"] = rng.choice([None, 2, 7, 64])  # of 1: no gradient of queries
    return model


def draw_gpt_neox(rng):
    heads, width = rng.randint(1, 6), 4 * rng.randint(1, 6)
    part = rng.choice([p for p in (0.25, 0.5, 1.0) if width * p % 2 == 0])
    return dict(num_attention_heads=heads, hidden_size=heads * width,
                intermediate_size=rng.randint(1, 200), num_hidden_layers=rng.randint(1, 4),
                max_position_embeddings=POSITIONS, hidden_act=draw_gelu(rng),
                use_parallel_residual=rng.random() < 0.5, attention_bias=rng.random() < 0.7,
                tie_word_embeddings=rng.random() < 0.4, layer_norm_eps=rng.choice([1e-6, 1e-5, 1e-3]),
                rope_parameters=dict(draw_rope(rng), partial_rotary_factor=part))


def draw_gpt2(rng):
    heads = rng.randint(1, 6)
    return dict(n_head=heads, n_embd=heads * rng.randint(4, 20), n_layer=rng.randint(1, 4),
                n_inner=rng.choice([None, rng.randint(1, 200)]), n_positions=POSITIONS,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
                layer_norm_epsilon=rng.choice([1e-6, 1e-5, 1e-3]),
                tie_word_embeddings=rng.random() < 0.6)


def draw_bert(rng):
    heads = rng.randint(1, 6)
    return dict(num_attention_heads=heads, hidden_size=heads * rng.randint(4, 20),
                intermediate_size=rng.randint(1, 200), num_hidden_layers=rng.randint(1, 4),
                max_position_embeddings=POSITIONS, hidden_act=draw_gelu(rng),
                type_vocab_size=rng.choice([2, 3]), layer_norm_eps=rng.choice([1e-12, 1e-5]),
                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def draw(rng):
    family = rng.choice([*DECODERS, "GPT2", "GPTNeoX", "Bert"])
    model = {"GPT2": draw_gpt2, "GPTNeoX": draw_gpt_neox, "Bert": draw_bert}.get(
        family, lambda r: draw_decoder(r, family))(rng)
    size = VOCABULARY if family == "Bert" else rng.randint(5, 400)
    padding = rng.choice([None, 0, -1, size - 1, rng.randrange(size), rng.randrange(5, VOCABULARY) % size])
    return {
        "family": family, "model": dict(model, vocab_size=size, initializer_range=0.05,
                                        pad_token_id=padding),
        # A random choice for each field that may be absent or stand elsewhere.
        "forms": [rng.random() for _ in range(12)],
        "sequences": rng.randint(2, 4), "length": rng.randint(12, 120),
        "hidden_targets": rng.random(), "options": rng.choice([[], ["--plain"], ["--recompute"]]),
        "steps": rng.randint(2, 6), "micro": rng.choice([1, 2, 4]), "seed": rng.randrange(2 ** 31),
    }


def move_rope(fields, choice):
    """Moves the fields of rotations to where older versions had them."""
    rope = dict(fields.pop("rope_parameters"))
    if fields["model_type"] == "gpt_neox":
        fields["rotary_emb_base"] = rope.pop("rope_theta")
        fields["rotary_pct"] = rope.pop("partial_rotary_factor")
    else:
        fields["rope_theta"] = rope.pop("rope_theta")
    if fields["model_type"] == "phi3":
        fields["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    original = rope.get("original_max_position_embeddings")
    if original and choice < 0.5:  # outside, alone or a second time
        fields["original_max_position_embeddings"] = original
        if choice < 0.25:
            del rope["original_max_position_embeddings"]
    if choice > 0.5 and rope["rope_type"] != "llama3":
        rope["type"] = rope.pop("rope_type")
    plain = rope.get("rope_type", rope.get("type")) == "default"
    fields["rope_scaling"] = None if plain else rope


def move_rope_of_kinds(fields):
    """Moves the rotations of kinds of layers to where versions before 5 had them, if version 5
    reads them there in the same way."""
    full, sliding = (dict(fields["rope_parameters"][kind])
                     for kind in ("full_attention", "sliding_attention"))
    theta, own = full.pop("rope_theta"), sliding["rope_theta"]
    olmo = fields["model_type"] == "olmo3"
    if sliding["rope_type"] != "default" or (olmo and (theta, own) != (500000.0, 500000.0)):
        return
    del fields["rope_parameters"]
    fields["rope_theta"] = theta
    fields["rope_scaling"] = None if full["rope_type"] == "default" else full
    if not olmo:
        fields["rope_local_base_freq"] = own


def as_another_version(path, forms):
    """Rewrites a config.json without a change of its meaning: some fields that have their default
    are left out, and others stand where an older version had them, or under another name."""
    fields, choices = json.loads(path.read_text()), iter(forms)
    if "rope_parameters" in fields and (choice := next(choices)) < 0.6:
        by_kind = fields["model_type"] in ("gemma3_text", "olmo3")
        move_rope_of_kinds(fields) if by_kind else move_rope(fields, choice / 0.6)
    kind, heads = fields["model_type"], fields.get("num_attention_heads")
    keys = 32 if kind.startswith("qwen") else heads
    defaults = {"tie_word_embeddings": kind in ("gpt2", "bert"), "attention_bias": kind == "gpt_neox",
                "n_inner": None, "initializer_range": None, "use_cache": True,
                "pad_token_id": 0 if kind == "bert" else None}
    if kind != "mistral":  # there an absent one is 8
        defaults["num_key_value_heads"] = keys
    if kind in ("llama", "mistral", "qwen2", "phi3") and fields["hidden_size"] % heads == 0:
        defaults["head_dim"] = fields["hidden_size"] // heads
    defaults.update(OWN_DEFAULTS.get(kind, {}))
    for field, default in defaults.items():
        if field in fields and fields[field] == default and next(choices, 1.0) < 0.6:
            del fields[field]
    if kind in ("llama", "qwen2", "qwen3", "phi3") and fields.get("num_key_value_heads") == heads:
        if next(choices, 1.0) < 0.5:
            fields["num_key_value_heads"] = None
    if kind == "qwen3_moe" and next(choices, 1.0) < 0.5:  # before version 5
        fields["num_experts"] = fields.pop("num_local_experts")
    if kind == "gpt2" and next(choices) < 0.5:
        for own, usual in (("n_embd", "hidden_size"), ("n_head", "num_attention_heads")):
            fields[usual] = fields.pop(own)
    path.write_text(json.dumps(fields))


def make(case, path):
    config = getattr(transformers, f"{case['family']}Config")(**case["model"])
    model_of(config, case["seed"]).save_pretrained(path / "model")
    as_another_version(path / "model" / "config.json", case["forms"])
    kind = (transformers.AutoModelForPreTraining if case["family"] == "Bert"
            else transformers.AutoModelForCausalLM)
    # The model is read again, so that transformers interprets the changed config.json.
    return kind.from_pretrained(path / "model", dtype=torch.float32, attn_implementation="eager",
                                experts_implementation="eager")


def with_padding(tokens, case):
    """Returns the tokens, of which a sixth are the padding token."""
    padding = case["model"]["pad_token_id"]
    if padding is not None:
        generator = torch.Generator().manual_seed(case["seed"] + 2)
        chosen = torch.rand(tokens.shape, generator=generator) < 1 / 6
        tokens = torch.where(chosen, padding % case["model"]["vocab_size"], tokens)
    return tokens


def check_bert(case, path, run, model):
    arrays = make_examples(5, max(case["length"], 24), 4, seed=case["seed"] % 2 ** 16)
    fields = fields_of(arrays)
    fields["input_ids"] = with_padding(fields["input_ids"], case)
    test_bert_model.assert_equal(
        test_bert_model.differences_on(run, path, model, fields, *case["options"]))


def check(case, path, run):
    torch.set_num_threads(1)
    model = make(case, path)
    if case["family"] == "Bert":
        return check_bert(case, path, run, model)
    tokens, targets = draw_tokens(case)
    found = differences_on(run, path, model, with_padding(tokens, case), targets, *case["options"])
    assert found["logits"] <= LOGITS_TOLERANCE, found
    assert found["loss"] <= LOGITS_TOLERANCE, found
    assert found["gradients"] <= GRADIENT_TOLERANCE, found
    rows = torch.randint(0, case["model"]["vocab_size"], (case["steps"] * BATCH, case["length"]),
                         generator=torch.Generator().manual_seed(case["seed"] + 1))
    rows = with_padding(rows, case)
    ours = curve_on(run, path, rows, case["micro"])
    theirs = torch_curve(model, rows, case["steps"])
    assert worst(ours, theirs) <= TOLERANCE, (ours, theirs)
    check_export(run, path / "run", path / "trained", model, 1e-3)
    return None
