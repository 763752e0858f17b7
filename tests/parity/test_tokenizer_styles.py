"""Every kind of tokenizer.json against Hugging Face tokenizers: ids, decoded text, parts.

The full amount of text is in test_tokenizer_soak.py.
"""
import json
import random
import struct
import subprocess

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from test_tokenizer import BIN, compare, our_results
from tokenizer_fuzz import random_spec, random_text
from tokenizer_styles import (bert_cased, deepseek_llm, many_languages, mistral, odd_texts, t5,
                              unigram_bytes)

POINTS = [chr(c) for c in range(1, 0x31000) if not 0xD800 <= c <= 0xDFFF]
SOME_POINTS = POINTS[:0x1400] + POINTS[0x1400::61]


@pytest.fixture(scope="session")
def texts():
    return many_languages(20_000)


# test_tokenizer_soak.py tries these styles with more texts, and the other styles.
@pytest.mark.parametrize("style", [mistral, bert_cased, t5, unigram_bytes, deepseek_llm])
def test_ids_and_text_equal_in_every_style(style, texts, tmp_path):
    tokenizer = style(texts[::2])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    sample = texts[1::2] + odd_texts(2000, 3) + ["", " ", "  x ", "\n"]
    compare(tokenizer, sample, our_results(tmp_path, sample, tmp_path))
    some = sample[::4]
    compare(tokenizer, some, our_results(tmp_path, some, tmp_path, special=False), False)


def characters(normalizer=None, pre_tokenizer=None):
    """Tokens are single bytes, or a byte and the space behind it: what a text is turned
    into and where it is cut shows in the ids. A piece that starts otherwise gets a space in
    front."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(byte, "\u0120") for byte in alphabet]
    vocab = {token: i for i, token in enumerate(alphabet + ["".join(pair) for pair in merges])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=bool(pre_tokenizer), use_regex=False)
    tokenizer.pre_tokenizer = byte_level
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


NORMALIZERS = {
    "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(),
    "nfkd": normalizers.NFKD(), "lower": normalizers.Lowercase(),
    "accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "strip": normalizers.Strip(), "nmt": normalizers.Nmt(),
    "bert": normalizers.BertNormalizer(), "bert_cased": normalizers.BertNormalizer(lowercase=False),
    "bert_accents": normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
    "prepend": normalizers.Prepend("_"), "replace": normalizers.Replace("a", "bb"),
    "regex": normalizers.Replace(Regex(r"[\s\p{P}]+"), "-"), "bytes": normalizers.ByteLevel(),
}


def compare_normalizer(name, points, tmp_path):
    tokenizer = characters(NORMALIZERS[name])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    sample = ["".join(f"e\u0323{c}\u0301 " for c in points[i:i + 4000])
              for i in range(0, len(points), 4000)] + points[:0x400] + odd_texts(500, 5)
    compare(tokenizer, sample, our_results(tmp_path, sample, tmp_path))


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizer_on_code_points_of_every_block(name, tmp_path):
    compare_normalizer(name, SOME_POINTS, tmp_path)


PRE_TOKENIZERS = {
    "digits": pre_tokenizers.Digits(), "digit": pre_tokenizers.Digits(individual_digits=True),
    "whitespace": pre_tokenizers.Whitespace(), "split": pre_tokenizers.WhitespaceSplit(),
    "bert": pre_tokenizers.BertPreTokenizer(), "delimiter": pre_tokenizers.CharDelimiterSplit("b"),
    "always": pre_tokenizers.Metaspace(), "never": pre_tokenizers.Metaspace(prepend_scheme="never"),
    "first": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                      pre_tokenizers.Metaspace(prepend_scheme="first")]),
    **{f"punctuation_{b}": pre_tokenizers.Punctuation(behavior=b) for b in
       ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]},
    "text": pre_tokenizers.Split("b'", behavior="removed"),
    "lazy": pre_tokenizers.Split(Regex(r"(?i:KS)|\p{Lu}\w*?\p{Ll}|^\d|(?=1)1\n?|[^\W\d]{2,3}|b++'"),
                                 behavior="isolated"),
    "inverted": pre_tokenizers.Split(Regex(r"\p{L}+|\p{^L}$"), behavior="merged_with_next",
                                     invert=True),
    "marks": pre_tokenizers.Split(Regex(r"[\p{M}\p{Sk}]+|[^\s\p{L}\p{N}]+?|\x41|\u00e9|\S\z"),
                                  behavior="contiguous"),
}


def compare_pre_tokenizer(name, points, tmp_path):
    tokenizer = characters(pre_tokenizer=PRE_TOKENIZERS[name])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    sample = ["".join(f"a{c}b'{c} {c}{c}1\n" for c in points[i:i + 4000])
              for i in range(0, len(points), 4000)] + odd_texts(500, 6)
    compare(tokenizer, sample, our_results(tmp_path, sample, tmp_path))


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_pre_tokenizer_on_code_points_of_every_block(name, tmp_path):
    compare_pre_tokenizer(name, SOME_POINTS, tmp_path)


def test_whitespace_that_a_neighbour_took_is_no_added_token(tmp_path):
    texts = ["".join(f"{a}{b}" for a in ["", "x", " "] for b in runs)
             for runs in [["\n" * n, " " * (n % 3)] for n in range(9)]]
    for left, right in [(True, True), (True, False), (False, True), (False, False)]:
        tokenizer = characters(normalizers.NFC())
        tokenizer.add_tokens([AddedToken("\n\n", lstrip=left, rstrip=right),
                              AddedToken("<r>", rstrip=True)])
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        # Hugging Face's library panics where only a part of a token is left.
        sample = texts + [f"<r>{t}<r>{t}y" for t in texts if right or not left]
        compare(tokenizer, sample, our_results(tmp_path, sample, tmp_path))


def test_a_special_token_that_the_vocabulary_has_twice_is_left_out(tmp_path):
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("<unk>", 0.0)], 0, False))
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    compare(tokenizer, ["ab", "b"], our_results(tmp_path, ["ab", "b"], tmp_path))


def compare_random(seed, count, tmp_path, charsmap=None):
    """Compares `count` texts in each random tokenizer, without texts that make Hugging Face
    panic."""
    rng = random.Random(seed)
    spec = random_spec(rng, charsmap)
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    texts = []
    for _ in range(count):
        text = random_text(rng, [token["content"] for token in spec["added_tokens"]])
        try:
            tokenizer.encode(text)
        except BaseException as error:  # pyo3's PanicException
            if "panic" not in type(error).__name__.lower():
                raise
            continue
        texts.append(text)
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    for text, (ids, _) in zip(texts, our_results(tmp_path, texts, tmp_path)):
        assert ids == tokenizer.encode(text).ids, (seed, text)


@pytest.mark.parametrize("block", range(4))
def test_starts_and_stripping_of_random_tokenizers(block, tmp_path, capfd):
    for seed in range(block * 30, block * 30 + 30):
        compare_random(seed, 40, tmp_path)
    capfd.readouterr()  # what Rust said of its panics


FIRST = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}


@pytest.mark.parametrize("normalizer,pre_tokenizer,text,tokens", [
    # The start of the text is gone, so nothing is put before the rest.
    (normalizers.Strip(), None, " ab", ["a", "b"]),
    (normalizers.Replace(Regex("^a+"), ""), None, "aab", ["b"]),
    (normalizers.Nmt(), None, "\x07b", ["b"]),
    # A character that replaces several stands where the last of them stood.
    (normalizers.Replace("ab", "x"), None, "abb", ["x", "b"]),
    (normalizers.Replace("a", "x"), None, "ab", ["\u2581", "x", "b"]),
    # All characters that come from the first one count as the start.
    (normalizers.NFKC(), pre_tokenizers.Split("\u2044", "isolated"), "\u00bd",
     ["\u2581", "1", "\u2581", "\u2044", "\u2581", "2"]),
    (normalizers.Prepend("x "), pre_tokenizers.WhitespaceSplit(), "ab",
     ["\u2581", "x", "\u2581", "a", "b"]),
])
def test_metaspace_first_goes_by_where_the_text_began(normalizer, pre_tokenizer, text, tokens,
                                                      tmp_path):
    spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": FIRST, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate("\u2581abx12\u2044")},
                      "merges": []}}
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer,
                                                           tokenizer.pre_tokenizer])
    assert tokenizer.encode(text).tokens == tokens
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert our_results(tmp_path, [text], tmp_path)[0][0] == tokenizer.encode(text).ids


def encoded(tmp_path, tokenizer, text):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "texts").write_bytes(struct.pack("<I", len(text)) + text.encode())
    return subprocess.run([str(BIN), "encode", str(tmp_path), str(tmp_path / "texts"),
                           str(tmp_path / "ids"), "plain"], capture_output=True, text=True)


def test_an_added_token_that_normalizes_to_nothing_is_refused(tmp_path):
    tokenizer = characters(normalizers.Strip())
    tokenizer.add_tokens([AddedToken("  ", normalized=True)])
    done = encoded(tmp_path, tokenizer, "ab")
    assert done.returncode == 78 and "leaves nothing of the added token" in done.stderr


def test_an_added_token_that_the_one_before_has_swallowed_is_refused(tmp_path):
    tokenizer = characters()
    tokenizer.add_tokens([AddedToken("  ", rstrip=True, normalized=False),
                          AddedToken("\t ", lstrip=True, normalized=False)])
    done = encoded(tmp_path, tokenizer, "a  \t   b")
    assert done.returncode == 78 and "has taken" in done.stderr


REFUSED = [
    ("model", {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "the model WordLevel"),
    ("normalizer", {"type": "Cyrillic"}, "the normalizer Cyrillic"),
    ("pre_tokenizer", {"type": "UnicodeScripts"}, "the pre-tokenizer UnicodeScripts"),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": r"(?<=a)b"}, "behavior": "Isolated",
                       "invert": False}, "this kind of group, at byte 1"),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": r"\p{Han}+"}, "behavior": "Isolated",
                       "invert": False}, "the property Han"),
    ("post_processor", {"type": "Other"}, "the post-processor Other"),
    ("decoder", {"type": "CTC", "pad_token": "x", "word_delimiter_token": "|", "cleanup": True},
     "the decoder CTC"),
]


@pytest.mark.parametrize("key,part,message", REFUSED)
def test_an_unsupported_part_is_refused_by_name(key, part, message, tmp_path):
    spec = json.loads(characters().to_str())
    spec[key] = part
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    (tmp_path / "texts").write_bytes(b"")
    done = subprocess.run([str(BIN), "encode", str(tmp_path), str(tmp_path / "texts"),
                           str(tmp_path / "ids"), "plain"], capture_output=True, text=True)
    assert done.returncode == 78
    assert message in done.stderr and "not supported" in done.stderr
