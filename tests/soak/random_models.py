"""Random small Llamas against transformers: logits, loss, first gradients, AdamW steps, and
exports that transformers reads."""

import json

import torch
from models import model_of
from test_model import GRADIENT_TOLERANCE, LOGITS_TOLERANCE, differences_on
from test_training import BATCH, TOLERANCE, curve_on, torch_curve, worst
from transformers import LlamaConfig, LlamaForCausalLM

POSITIONS = 256


def draw_rope(rng):
    rope = {"rope_type": rng.choice(["default", "llama3", "linear"]),
            "rope_theta": rng.choice([100.0, 10000.0, 500000.0, round(rng.uniform(50, 1e6), 3)])}
    if rope["rope_type"] != "default":
        rope["factor"] = rng.choice([1.0, 8.0, round(rng.uniform(1, 40), 2)])
    if rope["rope_type"] == "llama3":
        low = rng.choice([1.0, round(rng.uniform(0.25, 4), 2)])
        rope.update(low_freq_factor=low, high_freq_factor=low * rng.choice([1.5, 4.0]),
                    original_max_position_embeddings=rng.choice([16, 64, 100]))
    return rope


def draw_sizes(rng):
    """Draws the sizes of a model's parts, also sizes that nothing divides."""
    keys = rng.randint(1, 4)
    heads, head_dim = keys * rng.randint(1, 4), 2 * rng.randint(1, 16)
    return dict(
        num_attention_heads=heads, num_key_value_heads=keys, head_dim=head_dim,
        hidden_size=heads * rng.choice([head_dim, rng.randint(1, max(1, 120 // heads))]),
        intermediate_size=rng.randint(1, 200), num_hidden_layers=rng.randint(1, 4),
        rms_norm_eps=rng.choice([1e-6, 1e-5, 1e-3]),
        tie_word_embeddings=rng.random() < 0.4)


def draw(rng):
    return {
        "model": dict(draw_sizes(rng), vocab_size=rng.randint(5, 700), rope_parameters=draw_rope(rng),
                      max_position_embeddings=POSITIONS, initializer_range=0.05,
                      attn_implementation="eager"),
        "dtype": rng.choice(["float32", "float32", "bfloat16", "float16"]),
        "old_config": rng.random() < 0.5,
        "shard_size": rng.choice(["5GB", "100KB", "20KB"]),
        "sequences": rng.randint(1, 4), "length": rng.randint(3, 150), "hidden_targets": rng.random(),
        "options": rng.choice([[], ["--plain"], ["--recompute"]]),
        "steps": rng.randint(2, 6), "micro": rng.choice([1, 2, 4]), "seed": rng.randrange(2 ** 31),
    }


def as_old_config(path):
    """Rewrites a config.json as transformers wrote it before version 5: without fields that follow
    from the others."""
    fields = json.loads(path.read_text())
    rope = fields.pop("rope_parameters")
    fields["rope_theta"] = rope.pop("rope_theta")
    fields["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    fields["torch_dtype"] = fields.pop("dtype")
    if rope["rope_type"] == "linear":
        rope["type"] = rope.pop("rope_type")
    if fields["head_dim"] * fields["num_attention_heads"] == fields["hidden_size"]:
        del fields["head_dim"]
    if fields["num_key_value_heads"] == fields["num_attention_heads"]:
        del fields["num_key_value_heads"]
    path.write_text(json.dumps(fields))


def make(case, path):
    """Makes a model and reads it back from its files."""
    config = LlamaConfig(**case["model"])
    dtype = getattr(torch, case["dtype"])
    model_of(config, case["seed"]).to(dtype).save_pretrained(
        path / "model", max_shard_size=case["shard_size"])
    # The model is read back, since the cast has rounded the frequencies of RoPE, too.
    model = LlamaForCausalLM.from_pretrained(path / "model", dtype=torch.float32,
                                             attn_implementation="eager")
    if case["old_config"]:
        as_old_config(path / "model" / "config.json")
    return model


def draw_tokens(case):
    generator = torch.Generator().manual_seed(case["seed"])
    shape = case["sequences"], case["length"]
    tokens = torch.randint(0, case["model"]["vocab_size"], shape, generator=generator)
    targets = torch.full_like(tokens, -100)
    targets[:, :-1] = tokens[:, 1:]
    hidden = torch.rand(shape, generator=generator) < 0.5 * case["hidden_targets"]
    # One target is left, at a token that attends to others. With only the first token, the
    # gradients of queries and keys would be zero and their rounding could not be compared.
    hidden[0, -2] = False
    targets[hidden] = -100
    return tokens, targets


def check_export(run, source, path, model, tolerance):
    run("longhaul", "export", source, "--out", path, "--dtype", "fp32")
    ours = dict(type(model).from_pretrained(path, dtype=torch.float32).named_parameters())
    assert set(ours) == {n for n, _ in model.named_parameters()}
    for key, value in model.named_parameters():
        assert ((ours[key] - value).norm() <= tolerance * value.norm()).item(), key


def check(case, path, run):
    torch.set_num_threads(1)
    model = make(case, path)
    check_export(run, path / "model", path / "export", model, 0.0)
    found = differences_on(run, path, model, *draw_tokens(case), *case["options"])
    assert found["logits"] <= LOGITS_TOLERANCE, found
    assert found["loss"] <= LOGITS_TOLERANCE, found
    assert found["gradients"] <= GRADIENT_TOLERANCE, found
    rows = torch.randint(0, case["model"]["vocab_size"], (case["steps"] * BATCH, case["length"]),
                         generator=torch.Generator().manual_seed(case["seed"] + 1))
    ours = curve_on(run, path, rows, case["micro"])
    theirs = torch_curve(model, rows, case["steps"])
    assert worst(ours, theirs) <= TOLERANCE, (ours, theirs)
    check_export(run, path / "run", path / "trained", model, 1e-3)
