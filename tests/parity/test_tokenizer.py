"""Ids, decoded text and trained merges against Hugging Face tokenizers.

Run as: LONGHAUL_BIN_DIR=build/bin .venv/bin/python -m pytest tests/parity/test_tokenizer.py
All of the text, 200,000 odd strings and every code point are in test_tokenizer_soak.py.
The text is what Debian packages carry: perl-doc dict-gcide debian-handbook
python3.11-doc bible-kjv-text and Python's own sources.
"""
import glob
import gzip
import json
import os
import pathlib
import random
import struct
import subprocess

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

BIN = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", "build/bin")) / "longhaul_tokenize_tool"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASES = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|")
REGEX = {
    "llama3": WORDS + r"\p{N}{1,3}" + REST,
    "qwen2": WORDS + r"\p{N}" + REST,
    "o200k": CASES + r"\p{N}{1,3}" + REST.replace(r"[\r\n]*", r"[\r\n/]*", 1),
}


def read(path):
    opener = gzip.open if str(path).endswith((".gz", ".dz")) else open
    with opener(path, "rb") as file:
        return file.read().decode("utf-8", "ignore")


def files(pattern, limit):
    """Whole files up to `limit` bytes, spread over all that match."""
    paths = sorted(glob.glob(pattern, recursive=True))
    assert paths, f"nothing matches {pattern}: which package is missing?"
    random.Random(7).shuffle(paths)
    texts, total = [], 0
    for path in paths:
        text = read(path)
        if text and len(text) < limit:
            texts.append(text)
            total += len(text.encode())
        if total >= limit:
            break
    return texts


def slices(text, size=20000):
    return [text[i:i + size] for i in range(0, len(text), size)]


@pytest.fixture(scope="session")
def corpus():
    texts = slices(read("/usr/share/dictd/gcide.dict.dz")[:1_200_000])
    texts += files("/usr/share/doc/debian-handbook/html/**/*.html", 1_500_000)
    texts += files("/usr/share/perl/*/pod/*.pod", 1_000_000)
    texts += files("/usr/lib/python3.11/**/*.py", 1_500_000)
    texts += files("/usr/share/doc/python3.11/html/**/*.html", 800_000)
    assert sum(len(text.encode()) for text in texts) > 5_000_000
    return texts


def run(*arguments):
    done = subprocess.run([str(BIN), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_texts(path, texts):
    with open(path, "wb") as file:
        for text in texts:
            data = text.encode()
            file.write(struct.pack("<I", len(data)) + data)


def our_results(tokenizer, texts, tmp_path, special=True):
    write_texts(tmp_path / "texts", texts)
    run("encode", tokenizer, tmp_path / "texts", tmp_path / "ids",
        "special" if special else "plain")
    results = read_results(tmp_path / "ids")
    assert len(results) == len(texts)
    return results


def read_results(path):
    data = path.read_bytes()
    results, pos = [], 0
    while pos < len(data):
        (count,) = struct.unpack_from("<I", data, pos)
        ids = struct.unpack_from(f"<{count}I", data, pos + 4)
        pos += 4 + 4 * count
        (size,) = struct.unpack_from("<I", data, pos)
        results.append((list(ids), data[pos + 4:pos + 4 + size].decode()))
        pos += 4 + size
    return results


def empty_tokenizer(kind):
    tokenizer = Tokenizer(models.BPE())
    if kind == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(REGEX[kind]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


SPECIAL = {"gpt2": ["<|endoftext|>"],
           "llama3": ["<|begin_of_text|>", "<|end_of_text|>"],
           "qwen2": ["<|endoftext|>"],
           "o200k": ["<|endoftext|>"]}


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """For each pattern, the Hugging Face tokenizer of 6000 tokens, which is trained once."""
    made = {}

    def get(kind):
        if kind not in made:
            tokenizer = empty_tokenizer(kind)
            tokenizer.train_from_iterator(corpus[::9], trainers.BpeTrainer(
                vocab_size=6000, special_tokens=SPECIAL[kind], show_progress=False,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
            made[kind] = tokenizer
        return made[kind]

    return get


def dressed(kind, base):
    """The trained tokenizer with all parts that published tokenizers of its family have."""
    spec = json.loads(base.to_str())
    if kind == "qwen2":
        spec["normalizer"] = {"type": "NFC"}
    if kind == "llama3":
        spec["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_start", "<|reserved|>"])
    tokenizer.add_tokens([
        AddedToken("<think>", normalized=False), AddedToken("whole", single_word=True),
        AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True),
        AddedToken("[LR]", lstrip=True, rstrip=True, normalized=False),
        AddedToken("caf\u00e9!"), AddedToken("\u00e9\u00e9", normalized=False)])
    if kind == "llama3":
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                special_tokens=[("<|begin_of_text|>", 0)])])
    return tokenizer


def fuzzed(count, seed=1):
    rng = random.Random(seed)
    tokens = ["<|im_start|>", "<|im_start", "<|endoftext|>", "<think>", "whole", "[L]", "[R]",
              "[LR]", "caf\u00e9!", "cafe\u0301!", "\u00e9\u00e9", "<|begin_of_text|>", "<|"]
    words = ["the", "Hello", "WORLD", "don't", "I'LL", "we'Ve", "x'\u017f", "'s", "'D", "HTTPServer",
             "na\u00efve", "Stra\u00dfe", "123", "12345678", "3.14", "\u0663\u0664", "\u2167", "\u4f60\u597d",
             "\u0e20\u0e32\u0e29\u0e32", "e\u0301a\u0308", "\U0001F468\u200d\U0001F469", "\U0001F600", "a/b//",
             "\u1e9e", "\u01c5", "\u02b0\u02b1", "...", "!?\r\n", "--", "_x_", "\x00\x01", "\ufeff"]
    space = [" ", "  ", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u3000", "\u2028", "\x85", "\x0b",
             "\x0c", " \n ", "\u200b", "\x1c"]

    def point():
        while True:
            c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000),
                            rng.randrange(0x110000)])
            if not 0xD800 <= c <= 0xDFFF:
                return chr(c)

    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 14)):
            kind = rng.random()
            if kind < 0.3:
                parts.append(rng.choice(words))
            elif kind < 0.55:
                parts.append(rng.choice(space))
            elif kind < 0.7:
                parts.append(rng.choice(tokens))
            else:
                parts.append(point())
        texts.append("".join(parts))
    return texts


def compare(tokenizer, texts, results, special=True):
    theirs = tokenizer.encode_batch(texts, add_special_tokens=special)
    decoded = tokenizer.decode_batch([e.ids for e in theirs], skip_special_tokens=special)
    for text, (ids, back), their, their_back in zip(texts, results, theirs, decoded):
        assert ids == their.ids, f"for {text[:200]!r}"
        assert back == their_back, f"decoding {text[:200]!r}"


KINDS = ["gpt2", "llama3", "qwen2", "o200k"]
POINTS = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]
# All code points up to the Cyrillic block, and some of every other block.
SOME_POINTS = POINTS[:0x500] + POINTS[0x500:0x30000:23] + POINTS[0x30000::997]


def compare_texts(tokenizer, texts, tmp_path, special=True):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    compare(tokenizer, texts, our_results(tmp_path, texts, tmp_path, special), special)


def class_texts(points):
    """Texts that are cut into pieces by the class of each code point."""
    return ["".join(f"a{c}b'{c} {c}{c}1\n" for c in points[i:i + 4000])
            for i in range(0, len(points), 4000)]


def form_texts(points):
    """Texts whose normal form depends on what each code point composes with."""
    return ["".join(f"e\u0323{c}\u0301 " for c in points[i:i + 4000])
            for i in range(0, len(points), 4000)]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_decoded_text_equal_on_real_text(kind, trained, corpus, tmp_path):
    compare_texts(dressed(kind, trained(kind)), corpus[::12], tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", [True, False])
def test_ids_and_decoded_text_equal_on_odd_strings(kind, special, trained, tmp_path):
    compare_texts(dressed(kind, trained(kind)), fuzzed(4000, seed=1 + special), tmp_path,
                  special)


@pytest.mark.parametrize("kind", KINDS)
def test_code_points_of_every_block_are_of_the_right_class(kind, trained, tmp_path):
    compare_texts(trained(kind), class_texts(SOME_POINTS), tmp_path)


def test_normal_form_of_code_points_of_every_block(trained, tmp_path):
    points = [c for c in SOME_POINTS if "\u00c0" <= c < "\U00030000"]
    compare_texts(dressed("qwen2", trained("qwen2")), form_texts(points), tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_gives_the_text_back(kind, trained, corpus, tmp_path):
    trained(kind).save(str(tmp_path / "tokenizer.json"))
    texts = corpus[::20] + [t for t in fuzzed(2000) if "<|" not in t]
    for text, (_, back) in zip(texts, our_results(tmp_path, texts, tmp_path)):
        assert back == text


def test_prefix_space_and_merges_as_strings(trained, tmp_path):
    spec = json.loads(trained("gpt2").to_str())
    spec["pre_tokenizer"]["add_prefix_space"] = True
    spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = fuzzed(3000, seed=5)
    compare(tokenizer, texts, our_results(tmp_path, texts, tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_trainer_makes_the_same_merges(kind, trained, corpus, tmp_path):
    write_texts(tmp_path / "texts", corpus[::9])
    run("train", tmp_path / "texts", tmp_path / "out", kind, 6000, 0)
    ours = json.loads((tmp_path / "out/tokenizer.json").read_text())["model"]
    theirs = json.loads(trained(kind).to_str())["model"]
    assert ours["merges"] == theirs["merges"]
    assert ours["vocab"] == theirs["vocab"]


def test_trainer_stops_where_pairs_are_rare(corpus, tmp_path):
    texts = corpus[:12]
    tokenizer = empty_tokenizer("llama3")
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=100000, min_frequency=3, special_tokens=SPECIAL["llama3"],
        show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    write_texts(tmp_path / "texts", texts)
    run("train", tmp_path / "texts", tmp_path / "out", "llama3", 100000, 3)
    ours = json.loads((tmp_path / "out/tokenizer.json").read_text())["model"]
    theirs = json.loads(tokenizer.to_str())["model"]
    assert ours["merges"] == theirs["merges"]
    assert ours["vocab"] == theirs["vocab"]


@pytest.mark.parametrize("kind", KINDS)
def test_hugging_face_reads_what_we_train(kind, corpus, tmp_path):
    write_texts(tmp_path / "texts", corpus[::12])
    run("train", tmp_path / "texts", tmp_path / "out", kind, 3000, 2)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    texts = corpus[1::20] + fuzzed(1000, seed=9)
    compare(tokenizer, texts, our_results(tmp_path / "out", texts, tmp_path))
    transformers = pytest.importorskip("transformers")
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert auto.eos_token == SPECIAL[kind][-1] and auto.bos_token == SPECIAL[kind][0]
    assert auto(texts[0]).input_ids == tokenizer.encode(texts[0]).ids
