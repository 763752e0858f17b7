#!/usr/bin/python3
"""Turns documentation that Debian packages carry into two corpora of JSON lines.

    tools/demo_corpus.py OUT

writes OUT/dictionary.jsonl.gz (the GNU dictionary of English, one entry a document) and
OUT/manuals.jsonl (the manuals of Perl and Python, one section a document). Documents that
say the same, but for case and spaces, are written once.
"""

import gzip
import hashlib
import json
import pathlib
import re
import sys

DICTIONARY = pathlib.Path("/usr/share/dictd/gcide.dict.dz")
PERL = pathlib.Path("/usr/share/perl")
PYTHON = pathlib.Path("/usr/share/doc")
SHORTEST = 40  # characters; less is a cross reference or an empty heading


def fail(message):
    sys.exit(f"demo_corpus: error: {message}")


def dictionary():
    """Entries: a headword at the start of a line, its text indented below."""
    if not DICTIONARY.exists():
        fail(f"{DICTIONARY} is missing; `make deps` installs dict-gcide")
    text = gzip.decompress(DICTIONARY.read_bytes()).decode("utf-8", "replace")
    # Lines that only name the edition stand under nearly every entry.
    text = re.sub(r"\n *\[[^\]\n]*(?:Webster|WordNet|PJC|GCIDE)[^\]\n]*\](?=\n)", "", text)
    yield from re.split(r"\n\n+(?=\S)", text)


def perl_sections():
    pages = sorted({page.resolve() for page in PERL.glob("*/pod/perl*.pod")})
    if not pages:
        fail(f"no pages in {PERL}/*/pod; `make deps` installs perl-doc")
    for page in pages:
        if page.stem in ("perltoc", "perluniprops"):  # tables, not text
            continue
        text = page.read_text("utf-8", "replace")
        yield from re.split(r"\n(?==head1 )", text)


def python_sections():
    found = PYTHON.glob("python3.*/html/_sources/**/*.rst.txt")
    pages = sorted({page.resolve() for page in found})
    if not pages:
        fail(f"no pages in {PYTHON}/python3.*/html/_sources; `make deps` installs "
             "python3.11-doc")
    for page in pages:
        text = page.read_text("utf-8", "replace")
        # A section begins with a line that the next one underlines.
        yield from re.split(r"\n\n+(?=[^\n]{3,80}\n(?:={3,}|-{3,})\n)", text)


def manuals():
    yield from perl_sections()
    yield from python_sections()


def without_duplicates(documents, counts):
    seen = set()
    for document in documents:
        text = document.strip()
        if len(text) < SHORTEST:
            counts["too short"] += 1
            continue
        key = hashlib.sha256(" ".join(text.lower().split()).encode()).digest()
        if key in seen:
            counts["duplicate"] += 1
            continue
        seen.add(key)
        yield text + "\n"


def write(path, documents):
    counts = {"documents": 0, "bytes": 0, "duplicate": 0, "too short": 0}
    temporary = path.with_name(path.name + ".part")
    opened = gzip.open(temporary, "wt", 1, "utf-8") if path.suffix == ".gz" else \
        temporary.open("w", encoding="utf-8")
    with opened as out:
        for text in without_duplicates(documents, counts):
            out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            counts["documents"] += 1
            counts["bytes"] += len(text.encode())
    temporary.rename(path)
    print(f"{path.name:21} {counts['documents']:8,} documents {counts['bytes'] / 1e6:6.1f} MB"
          f"   left out: {counts['duplicate']:,} duplicates, {counts['too short']:,} shorter"
          f" than {SHORTEST} characters")


def main():
    if len(sys.argv) != 2:
        fail("one argument is expected: the directory to write to")
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    write(out / "dictionary.jsonl.gz", dictionary())
    write(out / "manuals.jsonl", manuals())


if __name__ == "__main__":
    main()
