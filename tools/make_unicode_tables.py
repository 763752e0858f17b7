#!/usr/bin/env python3
"""Writes longhaul/tokenizer/unicode/unicode_data.cpp.

The classes are read out of Hugging Face tokenizers itself, code point by code point, so
that they are those of its regular expression engines whatever Unicode version each one
carries: the categories and \\w from the engine of the split patterns, and normal forms, lower
case, marks, punctuation and graphemes from the normalizers and pre-tokenizers that use them.
Run it with the Python of make deps; tests/parity/test_tokenizer.py compares every code
point again.
"""
import pathlib
import struct
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers
import tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def matched(pattern):
    """The code points that the split engine matches with `pattern`."""
    text = "".join(map(chr, POINTS))
    splitter = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    return {ord(c) for piece, _ in splitter.pre_tokenize_str(text) for c in piece}


CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
              "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"]


def flags():
    """Per flag of unicode_data.h, in the order of its bits from 5 on: its code points."""
    def emptied(normalizer):
        return {c for c in POINTS if normalizer.normalize_str(chr(c)) == ""}

    def bert(**wanted):
        return normalizers.BertNormalizer(**{
            "clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
            "lowercase": False, **wanted})

    text = "".join(map(chr, POINTS))
    left = pre_tokenizers.Punctuation(behavior="removed").pre_tokenize_str(text)
    plain = {ord(c) for piece, _ in left for c in piece}
    digits = pre_tokenizers.Digits(individual_digits=True)
    cut = digits.pre_tokenize_str("".join(chr(c) + "a" for c in POINTS))
    return [set(POINTS) - plain,
            {ord(piece) for piece, _ in cut if len(piece) == 1 and piece != "a"},
            emptied(bert(clean_text=True)), emptied(bert(strip_accents=True)),
            emptied(normalizers.StripAccents()), matched(r"\w")]


def grapheme_classes():
    """1 control, 2 extend, 3 spacing mark, 4 prepend, 5 pictograph; others are 0.

    A map whose keys are all the single bytes turns each cluster of less than six bytes into
    one Z and, in longer ones, each code point: counting them tells where clusters end.
    """
    units = [0] * 768
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 + byte] = 768 << 10 | 1 << 8 | byte
        units[512 + byte] = 1 << 31
    trie = struct.pack("<768I", *units)
    probe = normalizers.Precompiled(struct.pack("<I", len(trie)) + trie + b"Z\0")

    def count(text):
        return len(probe.normalize_str(text))

    classes = {}
    for c in POINTS[1:]:
        char = chr(c)
        if count("a" + char) == 1:
            if c != 0x200D:
                classes[c] = 2 if count(f"\u00a9{char}\u200d\u00a9\u0301") == 5 else 3
        elif count(char + "\u0301\u0301") == 2:
            classes[c] = 1
        elif count(char + "a") == 1:
            classes[c] = 4
        elif count(f"{char}\u200d\u00a9\u0301") == 4:
            classes[c] = 5
    classes[0] = 1
    return classes


def mappings():
    """(kind, code point, text): 0 canonical and 1 compatible decomposition, 2 lower case."""
    nfd, nfkd, lower = normalizers.NFD(), normalizers.NFKD(), normalizers.Lowercase()
    rows = []
    for c in POINTS:
        if 0xAC00 <= c <= 0xD7A3:
            continue
        canonical, compatible = nfd.normalize_str(chr(c)), nfkd.normalize_str(chr(c))
        small = lower.normalize_str(chr(c))
        if canonical != chr(c):
            rows.append((0, c, canonical))
        if compatible != canonical:
            rows.append((1, c, compatible))
        if small != chr(c):
            rows.append((2, c, small))
    return rows


def combining_classes():
    """Code point to class, found by which neighbours each one changes places with."""
    nfd = normalizers.NFD()

    def swaps(first, second):
        return nfd.normalize_str(first + second) == second + first != first + second

    def moves(char):
        return swaps(char, "\u0334") or swaps("\u0345", char)  # the least and the largest

    # One of each class, known to the normalizer: marks younger than its tables stay.
    known = {1: "\u0334", 240: "\u0345"}
    for c in POINTS:
        kind = unicodedata.combining(chr(c))
        if kind and kind not in known and moves(chr(c)):
            known[kind] = chr(c)
    classes = {}
    for c in POINTS:
        char = chr(c)
        if nfd.normalize_str(char) != char or not moves(char):
            continue
        classes[c] = next(k for k in sorted(known)
                          if not swaps(char, known[k]) and not swaps(known[k], char))
    return classes


def compositions(rows):
    nfc = normalizers.NFC()
    found = []
    for kind, c, text in rows:
        if kind == 0 and len(text) > 1 and nfc.normalize_str(text) == chr(c):
            first = nfc.normalize_str(text[:-1])
            assert len(first) == 1
            found.append((ord(first), ord(text[-1]), c))
    return found


def properties():
    value = {}
    for i, name in enumerate(CATEGORIES):
        for c in matched(rf"\p{{{name}}}"):
            value[c] = i + 1
    for bit, members in enumerate(flags()):
        for c in members:
            value[c] = value.get(c, 0) | 32 << bit
    for c, kind in grapheme_classes().items():
        value[c] = value.get(c, 0) | kind << 11
    return value


def runs(value):
    """(length << 16 | value) from code point 0 on."""
    rows, start = [], 0
    for c in range(1, 0x110001):
        if c == 0x110000 or value.get(c, 0) != value.get(start, 0) or c - start == 0xFFFF:
            rows.append((c - start) << 16 | value.get(start, 0))
            start = c
    return rows


def array(kind, name, numbers):
    lines, line = [], " "
    for number in numbers:
        cell = f" {number:#x}," if number > 9 else f" {number},"
        if len(line) + len(cell) > 100:
            lines.append(line)
            line = " "
        line += cell
    body = "\n".join(lines + [line])
    return (f"const {kind} {name}[] = {{\n{body}\n}};\n"
            f"const size_t {name}Count = {len(numbers)};\n\n")


def main():
    rows = mappings()
    flat = []
    for kind, c, text in rows:
        flat += [kind << 29 | len(text) << 24 | c, *map(ord, text)]
    classes = []
    for c, kind in sorted(combining_classes().items()):
        classes.append(kind << 24 | c)
    pairs = [number for pair in compositions(rows) for number in pair]
    out = pathlib.Path(__file__).parent.parent / "longhaul/tokenizer/unicode/unicode_data.cpp"
    out.write_text(
        "// Written by tools/make_unicode_tables.py from Hugging Face tokenizers "
        f"{tokenizers.__version__}.\n// clang-format off\n"
        '#include "longhaul/tokenizer/unicode/unicode_data.h"\n\nnamespace longhaul::data {\n\n'
        + array("uint32_t", "kPropertyRuns", runs(properties()))
        + array("uint32_t", "kMappings", flat)
        + array("uint32_t", "kCombiningClasses", classes)
        + array("uint32_t", "kCompositions", pairs)
        + "}  // namespace longhaul::data\n")
    print(f"{out}: {out.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
