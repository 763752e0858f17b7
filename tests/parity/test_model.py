"""Logits and first gradients against transformers, in fp32 and bf16, and the faults that
must turn the comparison red."""

import json

import pytest
import torch
from models import CONFIGS, WITH_EXPERTS, as_transformers, distance, make_model
from programs import split
from safetensors.torch import load_file, save_file

LOGITS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
# `make test` tries one model for each kind of block; `make soak` tries the others, too.
NOW = ["llama3_gqa", "gemma3", "qwen3_moe"]
SOME = split(CONFIGS, NOW)
WAYS = ["--plain", "--recompute"]


def example(seed=1, sequences=3, length=128):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 320, (sequences, length), generator=generator)
    for place, padding in ((3, 0), (5, 2), (11, 7)):  # those of models.py, often
        tokens[:, place::16] = padding
    targets = torch.full_like(tokens, -100)
    targets[:, :-1] = tokens[:, 1:]
    targets[0, 5:17] = -100
    return tokens, targets


def reference(model, tokens, targets):
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(
        logits.float().view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-100
    )
    loss.backward()
    gradients = {name: value.grad for name, value in model.named_parameters()}
    return logits.detach(), loss.detach(), gradients


def differences(run, tmp_path, name, *options):
    """The largest distance of logits, loss and gradients from transformers."""
    model = make_model(name)
    model.save_pretrained(tmp_path / "model")
    return differences_on(run, tmp_path, model, *example(), *options)


def differences_on(run, tmp_path, model, tokens, targets, *options):
    """The largest distance of logits, loss and gradients, for a model in tmp_path / "model"."""
    save_file(
        {"tokens": tokens.int().contiguous(), "targets": targets.int().contiguous()},
        tmp_path / "tokens.safetensors",
    )
    run("longhaul_model_tool", tmp_path / "model", tmp_path / "tokens.safetensors",
        tmp_path / "out.safetensors", *options)
    found = load_file(tmp_path / "out.safetensors")
    logits, loss, gradients = reference(model, tokens, targets)
    ours = as_transformers(model.config, {key[5:]: value for key, value in found.items()
                                          if key.startswith("grad.")})
    return distances((found["logits"], found["loss"], ours), (logits, loss, gradients))


def distances(found, wanted):
    """The distances of logits, of the loss, and of the gradient that is farthest."""
    (logits, loss, ours), (wanted_logits, wanted_loss, gradients) = found, wanted
    assert set(ours) == set(gradients)
    total = torch.sqrt(sum(g.double().square().sum() for g in gradients.values()))
    worst = 0.0
    for key, gradient in gradients.items():
        error = (ours[key].double() - gradient.double()).norm()
        worst = max(worst, (error / (gradient.double().norm() + 1e-6 * total)).item())
    return {
        "logits": distance(logits, wanted_logits.view(-1, wanted_logits.shape[-1])),
        "loss": distance(loss, wanted_loss.view(1)),
        "gradients": worst,
    }


@pytest.mark.parametrize("name,options", [
    *((name, []) for name in CONFIGS),
    *split([(name, [way]) for name in CONFIGS for way in WAYS],
           [(name, [way]) for name in NOW for way in WAYS])])
def test_logits_and_gradients_are_those_of_transformers(run, tmp_path, name, options):
    found = differences(run, tmp_path, name, *options)
    assert found["logits"] <= LOGITS_TOLERANCE, found
    assert found["loss"] <= LOGITS_TOLERANCE, found
    assert found["gradients"] <= GRADIENT_TOLERANCE, found


@pytest.mark.parametrize("name", SOME)
def test_bf16_is_as_close_as_that_of_transformers(run, tmp_path, name):
    found = differences(run, tmp_path, name, "--dtype", "bf16")
    logits, loss, gradients = reference(make_model(name).to(torch.bfloat16), *example())
    theirs = distances((logits.view(-1, logits.shape[-1]), loss.view(1), gradients),
                       reference(make_model(name), *example()))
    # Rounding sends some tokens to other experts in transformers as well as here.
    most = 1.5 if name in WITH_EXPERTS else 1.25
    assert found["logits"] <= most * theirs["logits"], (found, theirs)
    assert found["gradients"] <= most * theirs["gradients"], (found, theirs)
    assert found["loss"] <= 2e-3, found


@pytest.mark.parametrize("name,change", [
    ("mistral", dict(sliding_window=41)), ("mistral", dict(sliding_window=None)),
    ("pythia", dict(use_parallel_residual=False)), ("pythia", dict(hidden_act="gelu_new")),
    ("pythia", dict(rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                     "partial_rotary_factor": 0.5})),
    ("neox_serial", dict(use_parallel_residual=True)),
])
def test_mathematics_that_is_a_little_off_is_seen(run, tmp_path, name, change):
    model = make_model(name)
    model.save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    found = differences_on(run, tmp_path, model, *example())
    assert found["logits"] > LOGITS_TOLERANCE and found["gradients"] > GRADIENT_TOLERANCE, found


@pytest.mark.parametrize("name", split(
    [name for name, settings in CONFIGS.items() if "pad_token_id" in settings],
    ["llama3_gqa", "tied"]))
def test_a_padding_row_that_is_trained_is_seen(run, tmp_path, name):
    found = differences(run, tmp_path, name, "--fault", "trained_padding")
    assert found["logits"] <= LOGITS_TOLERANCE, found
    assert found["gradients"] > 100 * GRADIENT_TOLERANCE, found


@pytest.mark.parametrize("name", ["pythia", "mistral"])
@pytest.mark.parametrize("fault", ["scaled_norm", "halved_gradient"])
def test_a_planted_fault_in_another_family_is_seen(run, tmp_path, name, fault):
    found = differences(run, tmp_path, name, "--fault", fault)
    assert found["logits"] > LOGITS_TOLERANCE or found["gradients"] > GRADIENT_TOLERANCE, found


NETWORK_FAULTS = ["dropped_norm", "swapped_branches", "wrong_interleave", "wrong_activation",
                  "half_rotated", "no_window", "no_scale_of_scores", "no_scale_of_branches",
                  "one_rotation", "no_scale_of_embedding", "no_divisor_of_logits",
                  "no_cap_of_scores", "no_cap_of_logits",
                  "other_weights_of_experts", "one_expert_less", "swapped_gates"]


@pytest.mark.parametrize("name", SOME)
def test_a_network_that_is_wrong_in_one_way_is_seen(run, tmp_path, name):
    model = make_model(name)
    model.save_pretrained(tmp_path / "model")
    tokens, targets = example()
    save_file({"tokens": tokens.int(), "targets": targets.int()}, tmp_path / "tokens.safetensors")
    with torch.no_grad():
        wanted = model(input_ids=tokens).logits.view(-1, 320)
    seen = set()
    for fault in NETWORK_FAULTS:
        done = run("longhaul_model_tool", tmp_path / "model", tmp_path / "tokens.safetensors",
                   tmp_path / "out.safetensors", "--fault", f"network:{fault}", check=False)
        if f"no place for {fault}" in done.stderr:
            continue
        if done.returncode == 0:
            found = load_file(tmp_path / "out.safetensors")["logits"]
            assert distance(found, wanted) > LOGITS_TOLERANCE, fault
        else:  # files hold a tensor that no layer takes
            assert done.returncode == 78, done.stderr
        seen.add(fault)
    assert {"dropped_norm", "swapped_branches", "wrong_activation"} <= seen
    assert ("one_expert_less" in seen) == (name in WITH_EXPERTS)


@pytest.mark.parametrize(
    "fault", ["scaled_norm", "halved_positions", "wrong_denominator", "halved_gradient"]
)
def test_a_planted_fault_is_seen(run, tmp_path, fault):
    found = differences(run, tmp_path, "llama3_gqa", "--fault", fault)
    assert (found["logits"] > LOGITS_TOLERANCE or found["loss"] > LOGITS_TOLERANCE
            or found["gradients"] > GRADIENT_TOLERANCE), found
