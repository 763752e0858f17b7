"""Text of few syllables, its tokenizer, and the shards of examples that are made of it."""

import json
import random

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SYLLABLES = [a + b for a in "bcdfgh" for b in "aeiou"]


def write_tokenizer(folder):
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, token in enumerate(SPECIAL)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "lowercase": True,
                       "handle_chinese_chars": True, "strip_accents": None},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100,
                  "vocab": {token: i for i, token in enumerate(SPECIAL + SYLLABLES)}}}))
    return folder / "tokenizer.json"


def small_shards(run, folder, length=32, predictions=5):
    """A few hundred examples for BERT."""
    folder.mkdir()
    draw = random.Random(1)
    often = [1 / (1 + i) for i in range(len(SYLLABLES))]  # something to learn
    documents = [[" ".join(draw.choices(SYLLABLES, often, k=8)) for _ in range(8)]
                 for _ in range(40)]
    (folder / "text.txt").write_text("\n\n".join("\n".join(d) for d in documents))
    run("longhaul", "data", "build", "--bert", folder / "text.txt", "--tokenizer",
        write_tokenizer(folder), "--out", folder / "shards", "--seq-len", length,
        "--max-predictions", predictions, "--shards", 4)
    return folder / "shards"
