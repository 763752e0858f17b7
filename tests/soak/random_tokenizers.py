"""Random tokenizer.json, every part drawn by itself, and random strings against the package
tokenizers: ids, decoded text, and text that is decoded id by id."""

import json
import random

from test_tokenizer import compare, fuzzed, read_results, write_texts
from test_tokenizer_styles import NORMALIZERS, PRE_TOKENIZERS
from tokenizer_styles import BYTES, MARK, charsmap, odd_texts
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

NORMALIZERS = {**NORMALIZERS, "precompiled": None, "marks": normalizers.Replace(" ", MARK),
               "right": normalizers.Strip(left=False, right=True)}
PRE_TOKENIZERS = {
    **PRE_TOKENIZERS, "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "bytes_prefix": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "bytes_plain": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    "whole": pre_tokenizers.Metaspace(split=False),
    "underscore": pre_tokenizers.Metaspace(replacement="_", prepend_scheme="always")}
DECODERS = {
    "bytes": decoders.ByteLevel(), "words": decoders.WordPiece(),
    "words_plain": decoders.WordPiece(prefix="@@", cleanup=False), "marks": decoders.Metaspace(),
    "never": decoders.Metaspace(prepend_scheme="never"), "fallback": decoders.ByteFallback(),
    "fuse": decoders.Fuse(), "strip": decoders.Strip(" ", 1, 0), "suffix": decoders.BPEDecoder(),
    "replace": decoders.Replace(MARK, " "),
    "regex": decoders.Replace(Regex("e+"), "E")}
# Chains of decoders that stand together in files, in this order.
DECODER_CHAINS = [["regex", "bytes"], ["words", "regex", "replace"], ["words_plain", "replace"],
                  ["suffix", "replace", "regex"], ["regex", "fallback", "marks", "fuse"],
                  ["fallback", "never"], ["replace", "fallback", "fuse", "strip"]]
CONTENTS = ["<think>", "whole", "[L]", "caf\u00e9!", "\u00e9\u00e9", "<|", "<|im_start|>", "a", " b ", "I'LL",
            "\u4f60\u597d", "x'", "[INST]", "\n\n", "\ufb01ne"]


def some(rng, of, most):
    return rng.sample(sorted(of), rng.choice([0, 1, 1, 2, most]))


def draw_model(rng):
    kind = rng.choice(["BPE", "BPE", "BPE", "WordPiece", "Unigram"])
    options = {"byte_fallback": rng.random() < 0.4}
    if kind == "BPE":
        options.update(fuse_unk=rng.random() < 0.5, ignore_merges=rng.random() < 0.3)
    if kind == "WordPiece":
        options = {"max_input_chars_per_word": rng.choice([100, 5, 1]),
                   "continuing_subword_prefix": rng.choice(["##", "##", "", "@@"])}
    return {"kind": kind, "size": rng.choice([900, 1200]), "options": options}


def draw(rng):
    flags = ["single_word", "lstrip", "rstrip", "normalized", "special"]
    before, cuts = some(rng, NORMALIZERS, 3), some(rng, PRE_TOKENIZERS, 3)
    if before or {"bytes_prefix", "always"} & set(cuts):
        cuts = [name for name in cuts if name != "first"]  # docs/data.md: differs on purpose
    return {"model": draw_model(rng), "normalizers": before, "pre_tokenizers": cuts,
            "decoders": [n for n in rng.choice(DECODER_CHAINS) if rng.random() < 0.8],
            "added": [(content, {flag: rng.random() < 0.35 for flag in flags})
                      for content in some(rng, CONTENTS, 8)],
            "processor": rng.choice([None, "template", "bert", "roberta", "bytes"]),
            "special": rng.random() < 0.6, "seed": rng.randrange(2 ** 31)}


def chosen(names, of, sequence):
    """Returns None, the only part, or a sequence of the parts."""
    parts = [of[name] or normalizers.Precompiled(charsmap()) for name in names]
    return parts[0] if len(parts) == 1 else sequence(parts) if parts else None


def processor(name):
    if name == "template":
        return processors.TemplateProcessing(single="<s> $A </s> <s>", pair="$A $B",
                                             special_tokens=[("<s>", 1), ("</s>", 2)])
    if name == "bert":
        return processors.BertProcessing(("</s>", 2), ("<s>", 1))
    if name == "roberta":
        return processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return processors.ByteLevel(trim_offsets=False)


def train(case, texts):
    """Trains the model of the case. Its vocabulary comes from what the parts make of the texts."""
    model = case["model"]
    special = ["<unk>", "<s>", "</s>"]
    if model["options"].get("byte_fallback"):
        special += BYTES
    tokenizer = Tokenizer({"BPE": lambda: models.BPE(unk_token="<unk>"),
                           "WordPiece": lambda: models.WordPiece(unk_token="<unk>"),
                           "Unigram": models.Unigram}[model["kind"]]())
    for name, of, sequence in (("normalizer", NORMALIZERS, normalizers.Sequence),
                               ("pre_tokenizer", PRE_TOKENIZERS, pre_tokenizers.Sequence)):
        part = chosen(case[name + "s"], of, sequence)
        if part is not None:
            setattr(tokenizer, name, part)
    common = dict(vocab_size=model["size"] + len(special), show_progress=False,
                  special_tokens=special)
    if model["kind"] == "WordPiece":
        trainer = trainers.WordPieceTrainer(
            limit_alphabet=200, **common,
            continuing_subword_prefix=model["options"]["continuing_subword_prefix"])
    elif model["kind"] == "Unigram":
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **common)
    else:
        trainer = trainers.BpeTrainer(limit_alphabet=200, **common)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build(case, texts):
    spec = json.loads(train(case, texts).to_str())
    spec["model"].update(case["model"]["options"])
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    if case["decoders"]:
        tokenizer.decoder = chosen(case["decoders"], DECODERS, decoders.Sequence)
    if case["processor"]:
        tokenizer.post_processor = processor(case["processor"])
    for content, flags in case["added"]:
        if tokenizer.normalizer and not tokenizer.normalizer.normalize_str(content):
            flags["normalized"] = False  # an empty pattern: the library panics
        tokenizer.add_tokens([AddedToken(content, **flags)])
    return tokenizer


def check(case, path, run):
    seed = case["seed"]
    tokenizer = build(case, odd_texts(150, seed) + fuzzed(150, seed + 1))
    tokenizer.save(str(path / "tokenizer.json"))
    texts = odd_texts(400, seed + 2) + fuzzed(400, seed + 3) + ["", " ", "  x ", "\n", "a" * 300]
    random.Random(seed).shuffle(texts)
    write_texts(path / "texts", texts)
    result = run("longhaul_tokenize_tool", "encode", path, path / "texts", path / "ids",
                 "special" if case["special"] else "plain", check=False)
    assert "streamed" not in result.stderr, result.stderr
    if result.returncode:  # refused, or worse
        run("longhaul_tokenize_tool", "encode", path, path / "texts", path / "ids",
            "special" if case["special"] else "plain")
    results = read_results(path / "ids")
    assert len(results) == len(texts)
    for text, (ids, _) in zip(texts, results):
        assert ids == tokenizer.encode(text, add_special_tokens=case["special"]).ids, repr(text)
    # docs/data.md says that a token which is matched in normalized text is decoded as the file
    # writes it.
    other = {i for i, token in tokenizer.get_added_tokens_decoder().items()
             if tokenizer.id_to_token(i) != token.content}
    alike = [(t, r) for t, r in zip(texts, results) if not other & set(r[0])]
    compare(tokenizer, [t for t, _ in alike], [r for _, r in alike], case["special"])
