"""SentencePiece `.model` files: ids and text against the sentencepiece library."""
import json
import subprocess

import pytest
import sentencepiece

from test_tokenizer import BIN, our_results
from tokenizer_styles import many_languages, odd_texts, sentencepiece_model

UNIGRAM = {"model_type": "unigram", "vocab_size": 2000}
BPE = {"model_type": "bpe", "vocab_size": 2000}
MODELS = {
    "llama": {**BPE, "byte_fallback": True, "normalization_rule_name": "identity",
              "remove_extra_whitespaces": False, "split_digits": True,
              "allow_whitespace_only_pieces": True, "character_coverage": 0.99},
    "bpe": {**BPE, "character_coverage": 0.98},
    "bpe_symbols": {**BPE, "user_defined_symbols": ["<sep>", "whole", "a", "<x", "\u4e2d\u6587"],
                    "byte_fallback": True},
    "bpe_suffix": {**BPE, "treat_whitespace_as_suffix": True},
    "t5": UNIGRAM,
    "unigram_bytes": {**UNIGRAM, "byte_fallback": True, "character_coverage": 0.98},
    "unigram_symbols": {**UNIGRAM, "user_defined_symbols": ["<sep>", "whole", "of the", "of", "the wh",
                                                              "a", "\u4e2d\u6587"],
                        "control_symbols": ["<ctl>"]},
    "unigram_cased": {**UNIGRAM, "normalization_rule_name": "nmt_nfkc_cf",
                      "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "unigram_suffix": {**UNIGRAM, "treat_whitespace_as_suffix": True},
}


@pytest.fixture(scope="session")
def texts():
    return many_languages(30_000)


def compare_with_library(model, sample, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(model)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    results = our_results(tmp_path, sample, tmp_path)
    for text, (ids, back) in zip(sample, results):
        assert ids == library.encode(text), f"for {text[:200]!r}"
        assert back == library.decode(ids), f"decoding {text[:200]!r}"


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_text_equal_the_library(name, texts, tmp_path):
    model = sentencepiece_model(texts[::2], **MODELS[name])
    sample = texts[1::2] + odd_texts(2000, 8) + ["", " ", "  x ", "<sep>", "of the whole<sep> a"]
    # These texts are long enough for sums of scores to lose their last digits.
    sample += [" ".join(texts), " ".join(texts[::-1])]
    compare_with_library(model, sample, tmp_path)


def test_config_beside_the_model_decides_what_surrounds_a_text(texts, tmp_path):
    model = sentencepiece_model(texts[:4], **MODELS["bpe"])
    (tmp_path / "tokenizer.model").write_bytes(model)
    plain = our_results(tmp_path, ["some text"], tmp_path)[0][0]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(
        {"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>"}))
    assert our_results(tmp_path, ["some text"], tmp_path)[0][0] == [1, *plain, 2]
    assert our_results(tmp_path, ["some text"], tmp_path, special=False)[0][0] == plain


def refused(path, tmp_path):
    (tmp_path / "texts").write_bytes(b"")
    done = subprocess.run([str(BIN), "encode", str(path), str(tmp_path / "texts"),
                           str(tmp_path / "ids"), "plain"], capture_output=True, text=True)
    assert done.returncode == 78, done.stderr
    return done.stderr


def test_damaged_and_unsupported_models_are_refused_by_name(texts, tmp_path):
    model = sentencepiece_model(texts[:4], **MODELS["bpe"])
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model[:1000])
    assert "bytes where" in refused(path, tmp_path) or "inside a number" in refused(path, tmp_path)
    path.write_bytes(b"{}")
    assert "not a SentencePiece model" in refused(path, tmp_path)
    path.write_bytes(sentencepiece_model(texts[:2], model_type="word", vocab_size=400))
    assert "the type WORD" in refused(path, tmp_path)
    path.write_bytes(model)
    (tmp_path / "added_tokens.json").write_text('{"<new>": 2000}')
    assert 'adds "<new>"' in refused(tmp_path, tmp_path)
