"""Random spellings of rotations and kinds of layers in a config.json, for every family that
rotates: either the logits are those of transformers, or the error names a field of the file. A file
that transformers refuses is refused here, too."""

import json
import re
import shutil

import torch
from test_config_forms import DECODER_FORMS, FORMS, TOLERANCE, build, distance, ours, present, usual

BY_KIND = ["Gemma3Text", "Olmo3"]
OTHERS = ["GPTNeoX", *(name for name in FORMS if FORMS[name].keys() >= DECODER_FORMS.keys())]
THETAS = [500.0, 10000, 10000.0, 500000.0, 1000000]
POSITIONS = [16, 64]  # 64: max_position_embeddings, too
KINDS = ["full_attention", "sliding_attention"]
# The choices where nothing is drawn: `...` stands for a field that is absent.
ABSENT = [..., ..., ..., None]


def draw_object(rng, empty=0.1):
    """A rope_scaling, a rope_parameters, or an object for one kind of layers."""
    if rng.random() < empty:
        return rng.choice([None, {}])
    kind = rng.choice(["default", "default", "linear", "yarn", "llama3"])
    name = rng.choice(["rope_type", "rope_type", "type"])
    fields = {name: kind, "rope_theta": rng.choice([*ABSENT, *THETAS])}
    if rng.random() < 0.1:
        fields[rng.choice(["rope_type", "type"])] = rng.choice([kind, None, ..., "default"])
    if kind != "default" or rng.random() < 0.1:
        fields["factor"] = rng.choice([2.0, 2.0, 2.0, 4.0, None, ...])
    if kind in ("yarn", "llama3"):
        fields["original_max_position_embeddings"] = rng.choice([16, 16, 64, ..., ...])
    if kind == "llama3":
        fields.update(low_freq_factor=1.0, high_freq_factor=4.0)
    if kind == "yarn":
        fields.update(beta_fast=rng.choice([..., 8.0]), truncate=rng.choice([..., ..., True, False]),
                      attention_factor=rng.choice([..., ..., 0.7]))
    return present(fields)


def draw_parameters(rng, family):
    by_kind = family in BY_KIND
    if rng.random() < (0.1 if by_kind else 0.95):
        return draw_object(rng)
    kinds = KINDS if rng.random() < 0.6 else [rng.choice(KINDS)]
    return {kind: draw_object(rng) for kind in kinds}


def draw(rng):
    family = rng.choice(BY_KIND if rng.random() < 0.6 else OTHERS)
    fields = {"rope_parameters": draw_parameters(rng, family) if rng.random() < 0.5 else ...,
              "rope_theta": rng.choice([*ABSENT, *THETAS, *THETAS]),
              "rope_scaling": draw_object(rng) if rng.random() < 0.5 else ...,
              "original_max_position_embeddings": rng.choice([*ABSENT, *POSITIONS, *POSITIONS])}
    if family == "Gemma3Text" or rng.random() < 0.05:
        fields["rope_local_base_freq"] = rng.choice([*ABSENT, *THETAS])
        fields["sliding_window_pattern"] = rng.choice([..., ..., 2, 3, None])
        fields["_sliding_window_pattern"] = rng.choice([..., ..., 2, 6, None])
    if family in BY_KIND or rng.random() < 0.1:
        layers = rng.choice([1, 2, 2, 2, 2, 3])
        fields["layer_types"] = rng.choice([..., None, [rng.choice(KINDS) for _ in range(layers)]])
    if family == "GPTNeoX":
        fields.update(rotary_emb_base=rng.choice([*ABSENT, 500, 10000]),
                      rotary_pct=rng.choice([*ABSENT, 0.25, 0.5]),
                      partial_rotary_factor=rng.choice([..., *ABSENT, 0.25]))
    if rng.random() < 0.1:
        fields["transformers_version"] = "4.31.0"
    return {"family": family, "fields": present(fields)}


def check(case, path, run):
    torch.set_num_threads(1)
    family, changes = case["family"], case["fields"]
    base = usual(family)
    fields = {name: value for name, value in base.items()
              if name not in ("rope_parameters", "layer_types")}
    fields = json.loads(json.dumps({**fields, **changes}))
    (path / "models").mkdir()
    model, logits = build(path / "models" / "drawn", fields)
    if model is None:
        build(path / "plain", base)
        shutil.copy(path / "plain" / "model.safetensors", path / "models" / "drawn")
    found = ours(run, path, ["drawn"], family)["drawn"]
    if not isinstance(found, str):
        assert model is not None, "transformers refuses this file"
        assert (gap := distance(found, logits)) <= TOLERANCE, gap
        return
    said = found.strip()
    named = re.search(r"config\.json: (\w+)", said)
    assert named and named[1].startswith(("rope_", "rotary_", "layer_types", "original_max", "partial",
                                          "sliding_window", "_sliding_window")), said
    assert named[1] in fields or "is missing" in said, said
