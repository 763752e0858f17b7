"""20 MB of text and 200,000 odd strings through every style of tokenizer, every code point
through every part: no id differs."""
import json

import pytest
from tokenizers import pre_tokenizers, trainers

from test_tokenizer import KINDS, POINTS as ALL_POINTS, SPECIAL, class_texts, compare
from test_tokenizer import compare_texts, dressed, empty_tokenizer, form_texts, fuzzed
from test_tokenizer import our_results, run, write_texts
from test_sentencepiece import MODELS, compare_with_library
from test_tokenizer_styles import NORMALIZERS, POINTS, PRE_TOKENIZERS
from test_tokenizer_styles import compare_normalizer, compare_pre_tokenizer
from tokenizer_styles import STYLES, many_languages, odd_texts, sentencepiece_model

COUNT = 200_000


@pytest.fixture(scope="session")
def texts():
    found = many_languages()
    assert sum(len(text.encode()) for text in found) > 20_000_000
    return found


@pytest.fixture(scope="session")
def odd():
    return odd_texts(COUNT, 11)


@pytest.fixture(scope="session")
def byte_level(texts):
    """For each split pattern, a tokenizer of 6000 tokens and the texts on which it was trained."""
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = empty_tokenizer(kind)
            made[kind].train_from_iterator(texts[::12], trainers.BpeTrainer(
                vocab_size=6000, special_tokens=SPECIAL[kind], show_progress=False,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        return made[kind]

    return get


@pytest.mark.parametrize("kind", KINDS)
def test_byte_level_ids_and_text_equal(kind, byte_level, texts, tmp_path):
    for sample in [texts, fuzzed(COUNT, seed=21)]:
        compare_texts(dressed(kind, byte_level(kind)), sample, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_code_point_is_of_the_right_class(kind, byte_level, tmp_path):
    compare_texts(byte_level(kind), class_texts(ALL_POINTS), tmp_path)


def test_normal_form_of_every_code_point(byte_level, tmp_path):
    points = [c for c in ALL_POINTS if "\u00c0" <= c < "\U00030000"]
    compare_texts(dressed("qwen2", byte_level("qwen2")), form_texts(points), tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_trainer_makes_the_same_merges_of_much_text(kind, byte_level, texts, tmp_path):
    write_texts(tmp_path / "texts", texts[::12])
    run("train", tmp_path / "texts", tmp_path / "out", kind, 6000, 0)
    ours = json.loads((tmp_path / "out/tokenizer.json").read_text())["model"]
    theirs = json.loads(byte_level(kind).to_str())["model"]
    assert ours["merges"] == theirs["merges"]
    assert ours["vocab"] == theirs["vocab"]


@pytest.mark.parametrize("style", STYLES)
def test_ids_and_text_equal_in_every_style(style, texts, odd, tmp_path):
    tokenizer = style(texts[::40])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for sample in [texts, odd]:
        compare(tokenizer, sample, our_results(tmp_path, sample, tmp_path))


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_text_equal_the_library(name, texts, odd, tmp_path):
    model = sentencepiece_model(texts[::40], **MODELS[name])
    for sample in [texts, odd]:
        compare_with_library(model, sample, tmp_path)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizer_on_every_code_point(name, tmp_path):
    compare_normalizer(name, POINTS, tmp_path)


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_pre_tokenizer_on_every_code_point(name, tmp_path):
    compare_pre_tokenizer(name, POINTS, tmp_path)
