"""Every field of transformers' config classes, for every family: changing it changes the result
as it does there, or is refused by name, or changes nothing there either. A field that a newer
transformers brings fails the first test until it stands in a list."""

import dataclasses
import json

import pytest
import torch
import transformers
from models import TABLE, distance, model_of
from programs import split
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


def settings_of(family):
    """For a family: the settings of a small model, and its fields that are honoured, refused, and
    without effect beside NEUTRAL. Those of every decoder are added for a decoder."""
    fields = family["fields"]
    parts = [fields[key] for key in ("config", "honoured", "refused", "neutral")]
    if family["decoder"]:
        bases = (DECODER, DECODER_HONOURED, DECODER_REFUSED, {})
        parts = [{**base, **own} for base, own in zip(bases, parts)]
    parts[2] = {key: value for key, value in parts[2].items() if value is not None}
    return tuple(parts)


FAMILIES = {family["class"]: settings_of(family) for family in TABLE.values()}
# Fields on which the result of given weights on given tokens does not depend.
NEUTRAL = dict(
    output_hidden_states=True, chunk_size_feed_forward=2, id2label={0: "a"}, label2id={"a": 0},
    problem_type="regression", use_cache=False, bos_token_id=3, eos_token_id=[4],
    initializer_range=0.3,
    # test_model.py tests the effect of the padding token on gradients.
    pad_token_id=7)
# Fields that are not tried, since they describe the file or the call. Unit tests show that another
# architecture is refused.
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
    """Returns a function that gives the logits of the model in tmp_path / "model", or the error."""
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
    """Changes fields of a config.json in place."""
    file = path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_is_in_a_list(family):
    _, honoured, refused, neutral = FAMILIES[family]
    fields = {f.name for f in dataclasses.fields(getattr(transformers, f"{family}Config"))}
    listed = {*honoured, *refused, *neutral, *NEUTRAL, *NOT_TRIED}
    assert fields - listed == set()
    # The classes of Qwen2, Qwen3-MoE and Phi-3 have no head_dim, and take one.
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
    # If the weights also fit without the field, its change must be seen in the numbers or be
    # refused.
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


@pytest.mark.parametrize("family", split(FAMILIES, ["Llama", "Gemma3Text", "GPT2", "Bert"]))
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
