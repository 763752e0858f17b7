"""Random tokenizers and texts where Hugging Face's ids hang on details: what a normalizer
takes from the start of a text, and added tokens whose stripping meets the next one."""
import json

from tokenizers import Tokenizer

MARK = "\u2581"
# Letters, spaces of one, two and three bytes, what normal forms change, what normalizers drop.
PARTS = ["a", "b", "x", "A", "1", "-", ".", " ", "  ", "\t", "\n", "\u00a0", "\u3000", MARK, "_",
         "e\u0301", "\u00e9", "\u0301", "\u00bd", "\ufb01", "\u0344\u0323", "\u1e9b\u0323",
         "\u0130", "\uac01", "\u1100\u1161", "\u4e2d", "\x00", "\x07", "\u200b", "\ufeff",
         "\u212b", "\ufdfa", "\U0001F468\u200d\U0001F469"]


def random_text(rng, tokens=()):
    """A short text of such parts, runs of them, and tokens that touch."""
    parts = [*PARTS, *tokens, *tokens] if tokens else PARTS
    few = rng.sample(parts, min(len(parts), rng.randrange(2, 9)))
    return "".join(rng.choice(few) * rng.choice([1, 1, 1, 2, 3])
                   for _ in range(rng.randrange(1, 9)))


def replace(rng):
    if rng.random() < 0.5:
        pattern = {"String": rng.choice(["a", " ", "ab", "  ", "-", MARK, "e\u0301"])}
    else:
        pattern = {"Regex": rng.choice([r"^a+", r"^\s+", r" {2,}", r"\s+", r"^.", r"[ab]+",
                                        r"^\W"])}
    return {"type": "Replace", "pattern": pattern,
            "content": rng.choice(["", "", " ", "x", MARK, "xy", "a b"])}


def random_normalizer(rng, charsmap=None):
    kinds = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"]
    parts = []
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        kind = rng.randrange(6 if charsmap is None else 8)
        if kind == 0:
            parts.append({"type": "Strip", "strip_left": rng.random() < 0.8,
                          "strip_right": rng.random() < 0.5})
        elif kind in (1, 2):
            parts.append(replace(rng))
        elif kind == 3:
            parts.append({"type": "Prepend", "prepend": rng.choice([MARK, "x ", "-", "a"])})
        elif kind > 5:
            parts.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
        elif kind == 4 and rng.random() < 0.4:
            parts.append({"type": "BertNormalizer", "clean_text": rng.random() < 0.7,
                          "handle_chinese_chars": True, "strip_accents": rng.random() < 0.5,
                          "lowercase": rng.random() < 0.5})
        else:
            parts.append({"type": rng.choice(kinds)})
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {"type": "Sequence", "normalizers": parts}


def random_pre_tokenizer(rng):
    metaspace = {"type": "Metaspace", "replacement": rng.choice([MARK, MARK, "_"]),
                 "prepend_scheme": rng.choice(["first"] * 4 + ["always", "never"]),
                 "split": rng.random() < 0.6}
    parts = [metaspace]
    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    before = rng.randrange(8)
    if before == 0:
        parts.insert(0, {"type": "WhitespaceSplit"})
    elif before == 1:
        parts.insert(0, {"type": "Punctuation", "behavior": rng.choice(behaviors)})
    elif before == 2:
        parts.insert(0, {"type": "Split", "pattern": {"Regex": r"[\s\u2044a]"},
                         "behavior": rng.choice(behaviors), "invert": rng.random() < 0.3})
    elif before == 3:
        parts.insert(0, {"type": "Digits", "individual_digits": rng.random() < 0.5})
    if rng.random() < 0.15:
        parts.append(dict(metaspace, prepend_scheme="first", replacement="_"))
    return parts[0] if len(parts) == 1 else {"type": "Sequence", "pretokenizers": parts}


def random_added(rng, vocab):
    tokens, seen = [], set()
    for _ in range(rng.randrange(5)):
        content = rng.choice(["  ", "\t", " ", "ab", "a", "aa", "<x>", " <y>", "<z> ", "\u3000",
                              "\n\n", "x x", "\u00e9", "A", "<x><x>", MARK, MARK * 2])
        if content in seen:
            continue
        seen.add(content)
        special = rng.random() < 0.4
        new = sum(token["content"] not in vocab for token in tokens)
        tokens.append({"id": vocab.get(content, len(vocab) + new), "content": content,
                       "single_word": rng.random() < 0.15, "lstrip": rng.random() < 0.5,
                       "rstrip": rng.random() < 0.5, "normalized": rng.random() < 0.5,
                       "special": special})
    return tokens


def random_spec(rng, charsmap=None):
    """A tokenizer.json whose ids show every code point and every cut. No two of its added
    tokens normalize to the same (Hugging Face takes either, from load to load), none to nothing."""
    points = sorted({c for part in PARTS for c in part} | set("xyabcdefi 0123456789/\u2044\u0307")
                    | {"\u0308", "\u00c5", "\u00e5", "\u1ebd", "\u017f", "\u1e69"})
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>",
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "ignore_merges": False,
             "vocab": {}, "merges": []}
    vocab = {"<unk>": 0}
    for point in points:
        vocab.setdefault(point, len(vocab))
    for mark in (MARK, "_"):
        for point in (mark, "a", "b", "x", "1", "-"):
            if mark + point not in vocab:
                vocab[mark + point] = len(vocab)
                model["merges"].append([mark, point])
    model["vocab"] = vocab
    spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": random_normalizer(rng, charsmap),
            "pre_tokenizer": random_pre_tokenizer(rng), "post_processor": None, "decoder": None,
            "model": model}
    normalizer = Tokenizer.from_str(json.dumps(spec)).normalizer
    spec["added_tokens"] = random_added(rng, vocab)
    forms = {""}
    for token in spec["added_tokens"]:
        form = normalizer.normalize_str(token["content"]) if normalizer else token["content"]
        if form in forms:
            token["normalized"] = False
        forms.add(form)
    return spec
