"""Every field of transformers' config classes, for every family: changing it changes the result
as it does there, or is refused by name, or changes nothing there either. A field that a newer
transformers brings fails the first test until it stands in a list."""

import dataclasses
import json

import pytest
import torch
import transformers
from models import distance, model_of
from programs import later
from safetensors.torch import load_file, save_file

DECODER = dict(
    vocab_size=120, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=64,
    rms_norm_eps=1e-5, initializer_range=0.2, tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
ROTATED = dict(rope_parameters={"rope_type": "default", "rope_theta": 500.0})
DECODER_HONOURED = dict(
    ROTATED, vocab_size=130, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
    num_attention_heads=6, num_key_value_heads=4, head_dim=24, rms_norm_eps=0.1,
    tie_word_embeddings=True)
DECODER_REFUSED = dict(hidden_act="gelu", attention_dropout=1.5, max_position_embeddings=16)
SLIDING = ["full_attention", "sliding_attention"]
QWEN_REFUSED = dict(DECODER_REFUSED, use_sliding_window=True, layer_types=SLIDING)
# A rotation for each kind of layer.
KINDS = {"full_attention": {"rope_type": "default", "rope_theta": 10000.0},
         "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}
OTHER_KINDS = {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 9000.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 200.0}}
# What they mean needs use_sliding_window.
QWEN_NEUTRAL = dict(sliding_window=5, max_window_layers=1)

# Of training.
BALANCE = dict(output_router_logits=True, router_aux_loss_coef=0.3)

# family -> the settings of a small model, what is honoured, what is refused, and what changes
# nothing beside NEUTRAL.
FAMILIES = {
    "Llama": (DECODER, DECODER_HONOURED,
              dict(DECODER_REFUSED, attention_bias=True, mlp_bias=True, pretraining_tp=2), {}),
    "Mistral": (dict(DECODER, sliding_window=9), dict(DECODER_HONOURED, sliding_window=10),
                DECODER_REFUSED, {}),
    "Qwen2": (DECODER, {**DECODER_HONOURED, "head_dim": None}, QWEN_REFUSED, QWEN_NEUTRAL),
    "Qwen3": (DECODER, DECODER_HONOURED, dict(QWEN_REFUSED, attention_bias=True), QWEN_NEUTRAL),
    "Mixtral": (
        dict(DECODER, sliding_window=9, num_local_experts=4, num_experts_per_tok=2),
        dict(DECODER_HONOURED, sliding_window=10, num_local_experts=5, num_experts_per_tok=3),
        dict(DECODER_REFUSED, router_jitter_noise=0.1), BALANCE),
    "Qwen3Moe": (
        dict(DECODER, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=40,
             mlp_only_layers=[0]),
        dict(DECODER_HONOURED, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=48,
             norm_topk_prob=True, mlp_only_layers=[1], decoder_sparse_step=3, attention_bias=True),
        dict(DECODER_REFUSED, use_sliding_window=True), dict(BALANCE, sliding_window=5)),
    "Gemma3Text": (
        dict(DECODER, sliding_window=9, layer_types=SLIDING, rope_parameters=KINDS),
        dict({**DECODER_HONOURED, "rope_parameters": OTHER_KINDS, "num_hidden_layers": None},
             sliding_window=10, layer_types=["full_attention"] * 2, query_pre_attn_scalar=99,
             attention_bias=True, hidden_size=96, intermediate_size=72),
        dict(hidden_activation="gelu", attention_dropout=1.5, max_position_embeddings=16,
             attn_logit_softcapping=30.0, final_logit_softcapping=30.0,
             use_bidirectional_attention=True), {}),
    "Olmo2": (DECODER, dict(DECODER_HONOURED, attention_bias=True), DECODER_REFUSED, {}),
    "Olmo3": (
        dict(DECODER, sliding_window=9, layer_types=SLIDING, rope_parameters=KINDS),
        dict({**DECODER_HONOURED, "rope_parameters": OTHER_KINDS, "num_hidden_layers": None},
             sliding_window=10, layer_types=["full_attention"] * 2, attention_bias=True),
        DECODER_REFUSED, {}),
    "Granite": (
        DECODER, dict(DECODER_HONOURED, attention_bias=True, mlp_bias=True,
                      embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5,
                      attention_multiplier=0.3), DECODER_REFUSED, {}),
    "SmolLM3": (
        dict(DECODER, no_rope_layers=[1, 0]),
        dict(DECODER_HONOURED, attention_bias=True, mlp_bias=True, no_rope_layers=[0, 1],
             num_hidden_layers=None),
        dict(DECODER_REFUSED, use_sliding_window=True, layer_types=SLIDING),
        # Without use_sliding_window, and beside no_rope_layers.
        dict(sliding_window=5, no_rope_layer_interval=3)),
    "GPT2": (
        dict(vocab_size=120, n_embd=48, n_head=4, n_layer=2, n_inner=80, n_positions=64,
             resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.2,
             bos_token_id=0, eos_token_id=0),
        dict(vocab_size=130, n_embd=64, n_head=6, n_layer=3, n_inner=96, n_positions=72,
             layer_norm_epsilon=0.1, tie_word_embeddings=False,
             activation_function="gelu_pytorch_tanh"),
        dict(activation_function="gelu", resid_pdrop=1.5, embd_pdrop=-0.1, attn_pdrop=1.0,
             scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True,
             reorder_and_upcast_attn=True, add_cross_attention=True),
        # Of other heads than a language model's.
        dict(resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1,
             summary_type="last", summary_use_proj=False, summary_activation="tanh",
             summary_proj_to_labels=False, summary_first_dropout=0.3)),
    "GPTNeoX": (
        dict(vocab_size=120, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64, initializer_range=0.2,
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                              "partial_rotary_factor": 0.5}),
        dict(vocab_size=130, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
             num_attention_heads=6, layer_norm_eps=0.1, tie_word_embeddings=True,
             use_parallel_residual=False, attention_bias=False, hidden_act="gelu_fast",
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                              "partial_rotary_factor": 1.0}),
        dict(hidden_act="relu", attention_dropout=0.1, hidden_dropout=0.1,
             max_position_embeddings=16),
        dict(classifier_dropout=0.3, is_decoder=True)),
    "Bert": (
        dict(vocab_size=120, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64, initializer_range=0.2),
        dict(vocab_size=130, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
             num_attention_heads=6, max_position_embeddings=72, layer_norm_eps=0.1,
             type_vocab_size=3, hidden_act="gelu_fast"),
        dict(hidden_act="relu", is_decoder=True, add_cross_attention=True,
             tie_word_embeddings=False, hidden_dropout_prob=1.5,
             attention_probs_dropout_prob=-0.5, type_vocab_size=1),
        # Of training, and of other heads.
        dict(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.4, classifier_dropout=0.3)),
}
# The result of given weights on given tokens does not depend on them.
NEUTRAL = dict(
    output_hidden_states=True, chunk_size_feed_forward=2, id2label={0: "a"}, label2id={"a": 0},
    problem_type="regression", use_cache=False, bos_token_id=3, eos_token_id=[4],
    initializer_range=0.3,
    # What it does to gradients is in test_model.py.
    pad_token_id=7)
# Of the file and of the call; what another architecture means is refused in the unit tests.
NOT_TRIED = {"transformers_version", "architectures", "return_dict", "dtype",
             "is_encoder_decoder"}
TOLERANCE = 1e-5
SEEN = 1e-4


def make(family, **changes):
    config = getattr(transformers, f"{family}Config")(**{**FAMILIES[family][0], **changes})
    return model_of(config)


def shapes(model):
    return {name: value.shape for name, value in model.state_dict().items()}


def theirs(model, tokens):
    with torch.no_grad():
        out = model.eval()(input_ids=tokens)
    return out["prediction_logits" if "prediction_logits" in out else "logits"].view(
        -1, model.config.vocab_size)


def example():
    return torch.randint(0, 120, (2, 32), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def ours(run, tmp_path):
    """Logits of the model in tmp_path / "model", or what was said."""
    tokens = example().int()

    def call():
        config = json.loads((tmp_path / "model/config.json").read_text())
        inputs = {"tokens": tokens, "targets": tokens.clone()}
        if config["model_type"] == "bert":
            inputs["document_end"] = torch.full_like(tokens, tokens.shape[1])
            inputs["next_sentence"] = torch.zeros(tokens.shape[0], dtype=torch.int)
        save_file(inputs, tmp_path / "tokens.safetensors")
        result = run("longhaul_model_tool", tmp_path / "model", tmp_path / "tokens.safetensors",
                     tmp_path / "out.safetensors", check=False)
        if result.returncode != 0:
            return result.stderr
        return load_file(tmp_path / "out.safetensors")["logits"]

    return call


def rewrite(path, changes):
    """Fields of a config.json, as they stand in another one."""
    file = path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_is_in_a_list(family):
    _, honoured, refused, neutral = FAMILIES[family]
    fields = {f.name for f in dataclasses.fields(getattr(transformers, f"{family}Config"))}
    listed = {*honoured, *refused, *neutral, *NEUTRAL, *NOT_TRIED}
    assert fields - listed == set()
    # The classes of Qwen2 and Qwen3-MoE have no head_dim, and take one.
    assert listed - fields <= {"head_dim"}


def cases(part, of_decoders):
    """Fields of a family's list; those that every decoder reads alike run with one of them, and under
    the label soak with the others."""
    others = ("Mistral", "GPT2", "GPTNeoX", "Bert")
    return [pytest.param(family, field, marks=pytest.mark.soak if family not in others
                         and value == of_decoders.get(field) else ())
            for family in FAMILIES for field, value in FAMILIES[family][part].items()
            if value is not None]


@pytest.mark.parametrize("family,field", cases(1, DECODER_HONOURED))
def test_a_field_is_honoured(ours, tmp_path, family, field):
    honoured = FAMILIES[family][1]
    model = make(family, **{field: honoured[field]})
    model.save_pretrained(tmp_path / "model")
    want = theirs(model, example())
    assert distance(ours(), want) <= TOLERANCE
    # Where the weights fit without it, it is seen: by the numbers, or by what is refused.
    before = make(family)
    if shapes(before) == shapes(model) and field != "activation_function":  # two names of one
        rewrite(tmp_path / "model", {field: before.config.to_dict()[field]})
        found = ours()
        assert isinstance(found, str) or distance(found, want) > SEEN


@pytest.mark.parametrize("family,field", cases(2, DECODER_REFUSED))
def test_a_field_is_refused_by_name(ours, tmp_path, family, field):
    make(family).save_pretrained(tmp_path / "model")
    rewrite(tmp_path / "model", {field: FAMILIES[family][2][field]})
    said = ours()
    assert isinstance(said, str) and field in said, said


@pytest.mark.parametrize("family", ["Llama", "Gemma3Text", "GPT2", "Bert", *later(
    "GPTNeoX", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe", "Olmo2", "Olmo3", "Granite",
    "SmolLM3")])
def test_other_fields_change_nothing_here_and_there(ours, tmp_path, family):
    neutral = {**NEUTRAL, **FAMILIES[family][3]}
    plain = make(family)
    changed = make(family, **neutral)
    changed.load_state_dict(plain.state_dict())
    changed.save_pretrained(tmp_path / "model")
    want = theirs(plain, example())
    assert torch.equal(theirs(changed, example()), want)
    rewrite(tmp_path / "model", neutral)  # as they are, whatever the class makes of them
    assert distance(ours(), want) <= TOLERANCE
