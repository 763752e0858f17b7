#!/usr/bin/env python3
"""Writes longhaul/data/tokenizer/unicode_ranges.cpp.

The classes are read out of Hugging Face tokenizers itself, code point by code point, so
that they are those of its regular expression engines whatever Unicode version each one
carries: \\p{L}, \\p{N}, \\s and the case classes from the engine of the split patterns, \\w
from the one that judges `single_word`.
Run it with the Python of make deps; tests/parity/test_tokenizer.py compares every code
point again.
"""
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
import tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CLASSES = [  # in the order of the bits in unicode.h
    r"\p{L}",
    r"\p{N}",
    r"\s",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
]


def matched(pattern):
    """The code points that the split engine matches with `pattern`."""
    text = "".join(map(chr, POINTS))
    splitter = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    return {ord(c) for piece, _ in splitter.pre_tokenize_str(text) for c in piece}


def word_characters():
    """Those before which a single_word token is not found."""
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("<|x|>", single_word=True, normalized=False)])
    token = tokenizer.token_to_id("<|x|>")
    text = "".join(chr(c) + "<|x|>" + "!" for c in POINTS)
    found = set()
    for piece in tokenizer.encode(text).offsets:
        if piece[1] - piece[0] == 5:
            found.add(ord(text[piece[0] - 1]))
    assert token == 1
    return set(POINTS) - found


def ranges(sets):
    rows, last = [], 0
    for c in range(0x110001):
        mask = 0
        for bit, members in enumerate(sets):
            mask |= (c in members) << bit
        if mask != last:
            if last:
                rows.append((start, c - 1, last))
            start, last = c, mask
    return rows


def main():
    rows = ranges([matched(p) for p in CLASSES] + [word_characters()])
    out = pathlib.Path(__file__).parent.parent / "longhaul/data/tokenizer/unicode_ranges.cpp"
    cells = [f"{{0x{a:04X}, 0x{b:04X}, {m}}}" for a, b, m in rows]
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 90:
            lines.append(line)
            line = "   "
        line += f" {cell},"
    lines.append(line)
    out.write_text(
        "// Written by tools/make_unicode_tables.py from Hugging Face tokenizers "
        f"{tokenizers.__version__}.\n// clang-format off\n"
        '#include "longhaul/data/tokenizer/unicode.h"\n\nnamespace longhaul::data {\n\n'
        "const UnicodeRange kUnicodeRanges[] = {\n" + "\n".join(lines) + "\n};\n"
        f"const size_t kUnicodeRangeCount = {len(rows)};\n\n}}  // namespace longhaul::data\n")
    print(f"{out}: {len(rows)} ranges", file=sys.stderr)


if __name__ == "__main__":
    main()
