"""A config.json whose fields are absent, null, or as older versions wrote them: either parameters
and logits are those of transformers, or the error names a field."""

import json
import re
import shutil

import pytest
import torch
import transformers
from models import CONFIGS, TABLE, distance, model_of
from programs import SOURCE, split
from safetensors.torch import load_file, save_file
from test_config_fields import FAMILIES, TOLERANCE, theirs

# Fields that decide a size. A file without one of them is refused here; transformers takes its
# class's default, however large.
REQUIRED = {
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "max_position_embeddings", "n_embd", "n_layer", "n_head", "n_positions", "rms_norm_eps",
    "moe_intermediate_size"}
# Fields that are not read, since nothing of a model depends on them; transformers refuses null for
# them.
OF_CALLS = {"use_cache", "return_dict"}
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
OLD_LLAMA3 = dict(rope_parameters=None, rope_theta=500.0)
# name -> the fields of the object that have other values.
YARN_NUMBERS = {
    "yarn": {}, "yarn_by_its_old_name": dict(rope_type=..., type="yarn"),
    "yarn_bounds": dict(beta_fast=4.0, beta_slow=0.5),
    "yarn_equal_bounds": dict(beta_fast=1, beta_slow=1, truncate=False),
    "yarn_bounds_that_cross": dict(beta_fast=1.0, beta_slow=2.0),
    "yarn_no_fast_bound": dict(beta_fast=0),
    "yarn_bounds_are_null": dict(beta_fast=None, beta_slow=None),
    "yarn_whole_bounds": dict(truncate=True), "yarn_parts_of_bounds": dict(truncate=False),
    "yarn_null_bounds": dict(truncate=None),
    "yarn_attention": dict(attention_factor=0.7),
    "yarn_attention_is_null": dict(attention_factor=None),
    "yarn_attention_of_zero": dict(attention_factor=0.0),
    "yarn_scales": dict(mscale=2.0, mscale_all_dim=0.5),
    "yarn_equal_scales": dict(mscale=0.707, mscale_all_dim=0.707),
    "yarn_one_scale": dict(mscale=2.0), "yarn_other_scale": dict(mscale_all_dim=2.0),
    "yarn_scale_of_zero": dict(mscale=0.0, mscale_all_dim=2.0),
    "yarn_scales_beside_attention": dict(attention_factor=0.7, mscale=2.0, mscale_all_dim=0.5),
    "yarn_factor_is_one": dict(factor=1.0), "yarn_factor_is_null": dict(factor=None),
    "yarn_without_positions": dict(original_max_position_embeddings=...),
    "yarn_with_a_number_of_llama3": dict(low_freq_factor=1.0),
}


def present(fields):
    return {name: value for name, value in fields.items() if value is not ...}


# name -> the fields that have other values; ... stands for an absent field.
LAYERS = {
    "too_few_layers": dict(layer_types=["full_attention"]),
    "too_many_layers": dict(layer_types=["full_attention"] * 3), "no_layers": dict(layer_types=[]),
    "layers_in_a_word": dict(layer_types="full_attention"),
    "full_layers": dict(layer_types=["full_attention"] * 2), "null_layers": dict(layer_types=None)}
DECODER_FORMS = {
    **LAYERS,
    **{name: dict(rope_parameters=present({**YARN, "rope_theta": 500.0, **numbers}))
       for name, numbers in YARN_NUMBERS.items()},
    "old_yarn": dict(OLD_LLAMA3, rope_scaling=YARN),
    "yarn_positions_outside": dict(OLD_LLAMA3, rope_scaling=YARN,
                                   original_max_position_embeddings=8),
    "not_causal": dict(is_causal=False), "causality_is_null": dict(is_causal=None),
    "causal": dict(is_causal=True), "decoder": dict(is_decoder=True),
    "other_theta_outside": dict(rope_theta=99.0),
    "theta_outside": dict(rope_parameters=..., rope_theta=500.0, rope_scaling=None),
    "theta_outside_of_new_object": dict(rope_parameters={"rope_type": "default"}, rope_theta=500.0),
    "no_theta": dict(rope_parameters=..., transformers_version="4.31.0"),
    "old_linear": dict(rope_parameters=..., rope_theta=500.0,
                       rope_scaling={"type": "linear", "factor": 2.0}),
    "two_objects": dict(rope_scaling={"rope_type": "linear", "factor": 2.0}),
    "two_equal_objects": dict(rope_scaling={"rope_type": "default"}),
    "empty_scaling": dict(rope_scaling={}),
    "empty_objects": dict(rope_scaling={}, rope_parameters={}, rope_theta=...),
    "empty_scaling_beside_theta": dict(rope_parameters=..., rope_scaling={}, rope_theta=500.0),
    "null_theta": dict(rope_parameters=..., rope_theta=None),
    "old_null_theta": dict(rope_parameters=..., rope_theta=None, transformers_version="4.31.0"),
    "null_theta_inside": dict(rope_parameters={"rope_type": "default", "rope_theta": None}),
    "null_theta_inside_and_one_outside": dict(
        rope_parameters={"rope_type": "default", "rope_theta": None}, rope_theta=500.0),
    "null_theta_outside": dict(rope_theta=None),
    "theta_in_the_scaling": dict(rope_parameters=..., rope_scaling={
        "rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}),
    "two_thetas_of_a_scaling": dict(rope_parameters=..., rope_theta=99.0, rope_scaling={
        "rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}),
    "objects_by_kind": dict(rope_parameters={"full_attention": {"rope_type": "default",
                                                                "rope_theta": 500.0}}),
    "null_positions_outside": dict(OLD_LLAMA3, rope_scaling={
        **LLAMA3, "original_max_position_embeddings": 16}, original_max_position_embeddings=None),
    "old_llama3": dict(OLD_LLAMA3, rope_scaling={**LLAMA3, "original_max_position_embeddings": 16}),
    "llama3_positions_outside": dict(OLD_LLAMA3, rope_scaling=LLAMA3,
                                     original_max_position_embeddings=16),
    "llama3_other_positions_outside": dict(
        OLD_LLAMA3, rope_scaling={**LLAMA3, "original_max_position_embeddings": 16},
        original_max_position_embeddings=8),
    "llama3_without_positions": dict(OLD_LLAMA3, rope_scaling=LLAMA3),
    "positions_of_no_kind": dict(original_max_position_embeddings=8),
    "part_of_a_head": dict(partial_rotary_factor=0.5),
    "part_of_a_head_inside": dict(rope_parameters={
        "rope_type": "linear", "factor": 2.0, "rope_theta": 500.0, "partial_rotary_factor": 0.5}),
    "layers_of_their_own": dict(per_layer_config={"0": {"hidden_act": "gelu"}}),
    "sliding_layers": dict(layer_types=["sliding_attention"] * 2, sliding_window=5),
    "window_in_use": dict(use_sliding_window=True, sliding_window=5),
    "biases": dict(attention_bias=True), "more_biases": dict(mlp_bias=True),
    "slices": dict(pretraining_tp=2), "old_dtype": dict(torch_dtype="float16", dtype=...),
    "padding_from_the_end": dict(pad_token_id=-1), "no_padding": dict(pad_token_id=-121),
    "keys_are_null": dict(num_key_value_heads=None), "keys_are_absent": dict(num_key_value_heads=...),
}
# Half as many heads as an absent field stands for, and as many: what is right for one of a
# kind is not for the other.
MANY_HEADS = {
    "keys_of_32": dict(num_attention_heads=32, num_key_value_heads=..., head_dim=2),
    "keys_of_64": dict(num_attention_heads=64, num_key_value_heads=..., head_dim=2),
    "null_keys_of_64": dict(num_attention_heads=64, num_key_value_heads=None, head_dim=2)}
# These files have a rotation for each kind of layer.
OLD_KINDS = dict(rope_parameters=..., rope_theta=500.0)
PLAIN = {"rope_type": "default", "rope_theta": 99.0}
LINEAR = {"rope_type": "linear", "factor": 2.0}
OLD_LINEAR = {"type": "linear", "factor": 2.0}
OUTSIDE = {"rope_type": "yarn", "factor": 4.0}
FULL = {"full_attention": {"rope_theta": 500.0}, "sliding_attention": PLAIN}
BY_KIND = {
    **LAYERS,
    "old_of_5e5": dict(OLD_KINDS, rope_theta=500000),
    "old_of_5e5_without_layers": dict(OLD_KINDS, rope_theta=500000.0, layer_types=...),
    "old_without_layers": dict(OLD_KINDS, layer_types=...),
    "old_full_layers": dict(OLD_KINDS, layer_types=["full_attention"] * 2),
    "old_sliding_layers": dict(OLD_KINDS, layer_types=["sliding_attention"] * 2),
    "old_null_theta": dict(OLD_KINDS, rope_theta=None),
    "null_theta_beside_objects": dict(rope_theta=None),
    "old_type": dict(OLD_KINDS, rope_theta=500000, rope_scaling=OLD_LINEAR),
    "old_type_without_theta": dict(rope_parameters=..., rope_scaling=OLD_LINEAR),
    "old_type_of_no_scaling": dict(OLD_KINDS, rope_theta=500000, rope_scaling={"type": "default"}),
    "both_types": dict(OLD_KINDS, rope_theta=500000, rope_scaling={**LINEAR, "type": "linear"}),
    "null_type": dict(OLD_KINDS, rope_theta=500000, rope_scaling={**OLD_LINEAR, "rope_type": None}),
    "no_type": dict(OLD_KINDS, rope_theta=500000, rope_scaling={"factor": 2.0}),
    "empty_scaling": dict(OLD_KINDS, rope_theta=500000, rope_scaling={}),
    "old_linear_of_5e5": dict(OLD_KINDS, rope_theta=500000, rope_scaling=LINEAR),
    "old_yarn_of_5e5": dict(OLD_KINDS, rope_theta=500000, rope_scaling=YARN),
    "theta_in_the_scaling": dict(rope_parameters=..., rope_scaling={**LINEAR, "rope_theta": 500.0}),
    "old_yarn_positions_outside": dict(OLD_KINDS, rope_theta=500000, rope_scaling=OUTSIDE,
                                       original_max_position_embeddings=16),
    "old_yarn_all_positions_outside": dict(OLD_KINDS, rope_theta=500000, rope_scaling=OUTSIDE,
                                           original_max_position_embeddings=64),
    "old_yarn_equal_positions_outside": dict(OLD_KINDS, rope_theta=500000, rope_scaling=YARN,
                                             original_max_position_embeddings=16),
    "old_yarn_other_positions_outside": dict(OLD_KINDS, rope_theta=500000, rope_scaling=YARN,
                                             original_max_position_embeddings=8),
    "old_yarn_parts_of_bounds": dict(OLD_KINDS, rope_theta=500000,
                                     rope_scaling={**YARN, "truncate": False}),
    "yarn_positions_outside": dict(rope_parameters={**FULL, "full_attention": {
        **OUTSIDE, "rope_theta": 500.0}}, original_max_position_embeddings=16),
    "scaling_beside_theta_by_kind": dict(rope_parameters=FULL, rope_scaling=LINEAR),
    "old_type_beside_theta_by_kind": dict(rope_parameters=FULL, rope_scaling=OLD_LINEAR),
    "scaling_beside_the_same_by_kind": dict(rope_parameters={**FULL, "full_attention": {
        **LINEAR, "rope_theta": 500.0}}, rope_scaling=LINEAR),
    "scaling_beside_another_by_kind": dict(rope_parameters={**FULL, "full_attention": {
        **LINEAR, "factor": 4.0, "rope_theta": 500.0}}, rope_scaling=LINEAR),
    "scaling_beside_sliding_alone": dict(rope_parameters={"sliding_attention": PLAIN},
                                         rope_scaling=LINEAR),
    "empty_scaling_beside_sliding_alone": dict(rope_parameters={"sliding_attention": PLAIN},
                                               rope_scaling={}),
    "null_object": dict(rope_parameters={**FULL, "full_attention": None}, rope_theta=500.0),
    "null_object_of_windows": dict(rope_parameters={**FULL, "sliding_attention": None}),
    "null_theta_by_kind": dict(rope_parameters={**FULL, "sliding_attention": {"rope_theta": None}}),
    "old_type_by_kind": dict(rope_parameters={**FULL, "full_attention": {
        **OLD_LINEAR, "rope_theta": 500.0}}),
    "kinds_without_theta": dict(rope_parameters={kind: {"rope_type": "default"} for kind in FULL}),
    "theta_outside_of_kinds": dict(rope_parameters={kind: {"rope_type": "default"} for kind in FULL},
                                   rope_theta=10000),
    "no_objects": dict(rope_parameters={}, rope_theta=500000),
    "another_kind": dict(rope_parameters={**FULL, "chunked_attention": PLAIN}),
    "not_causal": dict(is_causal=False), "causality_is_null": dict(is_causal=None),
    "old": OLD_KINDS, "old_without_theta": dict(rope_parameters=...),
    "old_linear": dict(OLD_KINDS, rope_scaling={"rope_type": "linear", "factor": 2.0}),
    "old_yarn": dict(OLD_KINDS, rope_scaling=YARN),
    "one_object": dict(rope_parameters=PLAIN),
    "full_alone": dict(rope_parameters={"full_attention": PLAIN}),
    "sliding_alone": dict(rope_parameters={"sliding_attention": PLAIN}),
    "theta_outside": dict(rope_theta=99.0),
    "other_layers": dict(layer_types=["chunked_attention"] * 2),
    "window_of_one": dict(sliding_window=1), "dropout_is_null": dict(attention_dropout=None),
    "padding_from_the_end": dict(pad_token_id=-1),
    **{f"by_kind_{name}": dict(rope_parameters={
        "full_attention": present({**YARN, "rope_theta": 500.0, **numbers}),
        "sliding_attention": PLAIN}) for name, numbers in YARN_NUMBERS.items()}}
# The number of experts has two names. Numbers in mlp_only_layers that are no layers have no effect.
EXPERT_FORMS = {
    "experts_by_their_old_name": dict(num_local_experts=..., num_experts=4),
    "experts_by_both_names": dict(num_experts=4), "other_experts_by_both_names": dict(num_experts=5),
    "no_experts": dict(num_local_experts=0), "no_expert_of_a_token": dict(num_experts_per_tok=0),
    "more_experts_of_a_token": dict(num_experts_per_tok=5),
    "noise_of_routers": dict(router_jitter_noise=0.1)}
QWEN_LAYERS = {
    "no_sparse_step": dict(decoder_sparse_step=0), "second_layers": dict(decoder_sparse_step=2),
    "layers_that_are_not_there": dict(mlp_only_layers=[0, 7, -1]),
    "every_layer_plain": dict(mlp_only_layers=[0, 1])}
NEOX_OLD = dict(rope_parameters=..., rotary_emb_base=500, rotary_pct=0.5)
FORMS = {
    **{family["class"]: DECODER_FORMS for family in TABLE.values() if family["decoder"]},
    "Mixtral": {**DECODER_FORMS, **EXPERT_FORMS},
    "Qwen3Moe": {**DECODER_FORMS, **MANY_HEADS, **EXPERT_FORMS, **QWEN_LAYERS},
    "Qwen2": {**DECODER_FORMS, **MANY_HEADS, "width_of_heads": dict(head_dim=8)},
    "Qwen3": {**DECODER_FORMS, **MANY_HEADS},
    # A scale of the embedding that was made in the dtype of the files keeps its rounding in
    # transformers.
    "Gemma2": {name: form for name, form in DECODER_FORMS.items() if name != "old_dtype"},
    "Phi3": {
        **DECODER_FORMS, "part_outside": dict(OLD_KINDS, partial_rotary_factor=0.5),
        "null_part": dict(OLD_KINDS, partial_rotary_factor=None),
        "null_part_inside": dict(rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": None}),
        "part_beside_a_scaling": dict(rope_scaling={"rope_type": "default", "rope_theta": 500.0},
                                      partial_rotary_factor=0.5),
        "odd_part": dict(OLD_KINDS, partial_rotary_factor=0.45)},
    "Gemma3Text": {
        **BY_KIND, "old_local_base": dict(OLD_KINDS, rope_local_base_freq=99.0),
        "old_local_linear": dict(OLD_KINDS, rope_local_base_freq=99.0, rope_scaling=LINEAR),
        "null_local_base": dict(OLD_KINDS, rope_local_base_freq=None),
        "equal_local_base": dict(rope_local_base_freq=500.0),
        "other_local_base": dict(rope_local_base_freq=99.0),
        "null_local_base_beside_objects": dict(rope_local_base_freq=None),
        "no_local_base": dict(OLD_KINDS, rope_local_base_freq=0.5),
        "pattern": dict(layer_types=..., sliding_window_pattern=2, _sliding_window_pattern=...),
        "two_patterns": dict(layer_types=..., sliding_window_pattern=2),
        "null_pattern": dict(layer_types=..., sliding_window_pattern=None),
        "pattern_beside_layers": dict(sliding_window_pattern=3),
        "hidden_pattern": dict(layer_types=..., _sliding_window_pattern=2),
        "usual_hidden_pattern": dict(layer_types=..., _sliding_window_pattern=6),
        "hidden_pattern_beside_layers": dict(_sliding_window_pattern=2)},
    "Olmo3": BY_KIND,
    "GPT2": {
        **LAYERS, "null_usual_width": dict(hidden_size=None),
        "not_causal": dict(is_causal=False), "causality_is_null": dict(is_causal=None),
        "usual_width": dict(n_embd=..., hidden_size=48),
        "usual_depth": dict(n_layer=..., num_hidden_layers=3),
        "usual_heads": dict(n_head=..., num_attention_heads=6),
        "usual_positions": dict(n_positions=..., max_position_embeddings=72),
        "two_widths": dict(hidden_size=64), "two_depths": dict(num_hidden_layers=3),
        "two_heads": dict(num_attention_heads=6), "two_positions": dict(max_position_embeddings=72),
        "context": dict(n_ctx=32), "width_of_heads": dict(head_dim=8),
        "layers_of_their_own": dict(per_layer_config={"0": {"activation_function": "relu"}})},
    "GPTNeoX": {
        **LAYERS, "null_base": dict(NEOX_OLD, rotary_emb_base=None),
        "null_part": dict(NEOX_OLD, rotary_pct=None),
        "null_base_beside_an_object": dict(rotary_emb_base=None),
        "empty_scaling": dict(NEOX_OLD, rope_scaling={}),
        "not_causal": dict(is_causal=False), "causality_is_null": dict(is_causal=None),
        "old": NEOX_OLD, "old_without_base": dict(NEOX_OLD, rotary_emb_base=...),
        "old_without_part": dict(NEOX_OLD, rotary_pct=...),
        "theta_by_its_new_name": dict(NEOX_OLD, rotary_emb_base=..., rope_theta=99.0),
        "its_default_by_its_new_name": dict(NEOX_OLD, rotary_emb_base=..., rope_theta=10000.0),
        "part_by_its_new_name": dict(NEOX_OLD, rotary_pct=..., partial_rotary_factor=0.5),
        "its_default_part_by_its_new_name": dict(NEOX_OLD, rotary_pct=...,
                                                 partial_rotary_factor=0.25),
        "old_linear": dict(NEOX_OLD, rope_scaling={"type": "linear", "factor": 2.0}),
        "old_yarn": dict(NEOX_OLD, rope_scaling=YARN),
        "scaling_beside_parameters": dict(rope_scaling={"rope_type": "linear", "factor": 2.0}),
        "equal_scaling_beside_parameters": dict(rope_scaling={"rope_type": "default"}),
        "other_theta_outside": dict(rope_theta=99.0), "other_base_outside": dict(rotary_emb_base=99),
        "positions_outside": dict(NEOX_OLD, rope_scaling=LLAMA3,
                                  original_max_position_embeddings=16),
        "width_of_heads": dict(head_dim=8), "own_width_of_heads": dict(head_dim=12),
        "no_width_of_heads": dict(head_dim=0), "keys": dict(num_key_value_heads=2),
        "padding": dict(pad_token_id=500)},
    "Bert": {
        **LAYERS, "null_kind_of_positions": dict(position_embedding_type=None),
        "not_causal": dict(is_causal=False), "positions": dict(position_embedding_type="relative_key"),
        "width_of_heads": dict(head_dim=8), "keys": dict(num_key_value_heads=2),
        "padding_from_the_end": dict(pad_token_id=-1),
        "layers_of_their_own": dict(per_layer_config={"0": {"hidden_act": "relu"}})},
}


# These are the spellings of published files, and those that mean the same in every version.
PUBLISHED = {
    "old_of_5e5", "old_of_5e5_without_layers", "old_linear_of_5e5", "old_yarn_of_5e5", "both_types",
    "old_yarn_equal_positions_outside", "old_yarn_all_positions_outside", "old_full_layers",
    "empty_scaling", "scaling_beside_theta_by_kind", "scaling_beside_the_same_by_kind", "old_local_base",
    "old_local_linear", "equal_local_base", "pattern", "usual_hidden_pattern",
    "hidden_pattern_beside_layers", "old_type_of_no_scaling", "kinds_without_theta", "full_layers"}


def usual(family):
    """Every field of the class, as a file may hold it."""
    config = getattr(transformers, f"{family}Config")(**FAMILIES[family][0])
    return json.loads(config.to_json_string(use_diff=False))


def cases(family):
    """For each case: name -> (fields of the file, names of the fields that have other values)"""
    base, found = usual(family), {}
    forms = dict(FORMS[family])
    for field in base.keys() - {"model_type"}:
        forms[f"{field}_is_absent"] = {field: ...}
        forms[f"{field}_is_null"] = {field: None}
    for name, changes in forms.items():
        fields = {**base, **changes}
        found[name] = present(fields), set(changes)
    return found


def build(path, fields):
    """Writes the file to `path`, and returns transformers' model of it; None where transformers
    builds none."""
    path.mkdir()
    file = path / "config.json"
    file.write_text(json.dumps(fields))
    try:
        model = model_of(transformers.AutoConfig.from_pretrained(path))
        logits = theirs(model, tokens())
        model.save_pretrained(path)
    except Exception:  # of any kind: by the class, by torch, or where the model runs
        model = logits = None
    file.write_text(json.dumps(fields))  # as it was, not as the class writes it
    return model, logits


def tokens():
    return torch.randint(0, 120, (2, 32), generator=torch.Generator().manual_seed(1))


def ours(run, path, names, family):
    """Logits of each model of path / "models", or what was said of it."""
    inputs = {"tokens": tokens().int(), "targets": tokens().int()}
    if family == "Bert":
        inputs["document_end"] = torch.full_like(inputs["tokens"], 32)
        inputs["next_sentence"] = torch.zeros(2, dtype=torch.int)
    save_file(inputs, path / "tokens.safetensors")
    results = {}
    for name in names:
        done = run("longhaul_model_tool", path / "models" / name, path / "tokens.safetensors",
                   path / "out.safetensors", check=False)
        assert done.returncode in (0, 75, 78), (name, done)
        results[name] = (load_file(path / "out.safetensors")["logits"].clone() if done.returncode == 0
                         else done.stderr)
    return results


@pytest.mark.parametrize("family", split(FORMS, ["Qwen2", "Gemma3Text", "GPT2", "Qwen3Moe"]))
def test_every_form_is_read_as_transformers_reads_it_or_refused_by_name(run, tmp_path, family):
    (tmp_path / "models").mkdir()
    build(tmp_path / "plain", usual(family))
    built = {}
    for name, (fields, changed) in cases(family).items():
        path = tmp_path / "models" / name
        if changed & REQUIRED and name.endswith("_is_absent"):
            # transformers' model is not built, because it would be as large as its class's default.
            path.mkdir()
            (path / "config.json").write_text(json.dumps(fields))
            built[name] = None, None
        else:
            built[name] = build(path, fields)
        if not (path / "model.safetensors").exists():
            shutil.copy(tmp_path / "plain" / "model.safetensors", path)
    results = ours(run, tmp_path, built, family)
    wrong, read, refused = {}, set(), set()
    for name, (_, changed) in cases(family).items():
        model, logits = built[name]
        said = found = results[name]
        if isinstance(said, str):
            named = any(field in said for field in changed) and ".safetensors" not in said
            if not named and (model is not None or changed & REQUIRED):
                wrong[name] = said
            elif model is not None:
                refused.add(name)
        elif model is not None:
            read.add(name)
            if (gap := distance(found, logits)) > TOLERANCE:
                wrong[name] = f"logits differ by {gap:.2g}"
        elif not changed <= {*OF_CALLS, "pad_token_id"}:  # training refuses that one
            wrong[name] = "was read, and transformers refuses it"
    assert not wrong, json.dumps(wrong, indent=1)
    if family in ("Gemma3Text", "Olmo3"):
        assert refused & PUBLISHED == set()
    assert len(read) > 20, read


def test_every_family_of_the_program_stands_in_every_list(run, tmp_path):
    """The lists have the families that docs/adding.md names."""
    (tmp_path / "config.json").write_text('{"model_type": "none_of_these"}')
    said = run("longhaul", "inspect", tmp_path, check=False)
    known = set(re.findall(r'"(\w+)" \(', said.stdout + said.stderr))
    assert len(known) >= 14, said

    def types(names):
        return {getattr(transformers, f"{name}Config").model_type for name in names}

    assert known == types(FAMILIES)
    assert known == types(FORMS)
    assert known == types(c["family"] for c in CONFIGS.values()) | {"bert"}
    assert known == set(TABLE)
    in_layouts = {name for name, family in TABLE.items() if "layouts" in family}
    text = "".join((SOURCE / "tests/dist" / file).read_text() for file in ("layouts.py", "test_layouts.py"))
    assert not [name for name in known - in_layouts if f'"{name}"' not in text]
