"""Text to ids: ours against Hugging Face tokenizers, tiktoken and gigatoken.

    .venv/bin/pip install -r requirements-bench.txt
    .venv/bin/python bench/bench_tokenize.py build/bench/bench_tokenize build/bin/longhaul

The text is what Debian packages carry: Python's sources, POD and a dictionary, and the
Chinese pages of a book without their tags. The vocabulary (Llama-3's split, 128,256
tokens) is trained by our own trainer on every other file; the rest is encoded. In each
round every side runs in a process of its own, one after the other. The first pass is that
of a fresh process, after the tokenizer is loaded and the text is in memory (gigatoken's
encode_files reads files, out of the page cache); "later" is the median of the passes
after it over the same text. Figures are medians over the rounds, in MB of text a second.
Ids are compared with Hugging Face's in the first round. Prints Markdown; exit 1 when a
target is missed or one of our ids differs.
"""

import argparse
import glob
import gzip
import importlib.util
import json
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY = 128_256
PASSES = {"longhaul": 7, "longhaul, 2 threads": 7, "Hugging Face": 1, "tiktoken": 1,
          "gigatoken files": 7, "gigatoken batch": 7}


def read(path):
    opener = gzip.open if path.endswith((".gz", ".dz")) else open
    with opener(path, "rb") as file:
        return file.read().decode("utf-8", "ignore")


def files(pattern, change=lambda text: text):
    paths = sorted(glob.glob(pattern, recursive=True))
    assert paths, f"nothing matches {pattern}: which package is missing?"
    random.Random(7).shuffle(paths)
    return [text for text in (change(read(path)) for path in paths) if text]


def first(texts, limit):
    """So many bytes of whole texts."""
    taken, total = [], 0
    for text in texts:
        if total >= limit:
            break
        taken.append(text)
        total += len(text.encode())
    return taken


def chinese(text):
    """The lines that are mostly Chinese, without tags."""
    lines = (line.strip() for line in re.sub("<[^>]*>", "", text).split("\n"))
    return "\n".join(line for line in lines
                     if sum(ord(c) > 0x2E7F for c in line) * 2 > len(line))


def corpora():
    code = files("/usr/lib/python3.11/**/*.py")
    manual = files("/usr/share/perl/*/pod/*.pod")
    words = read("/usr/share/dictd/gcide.dict.dz")
    words = [words[i:i + 20000] for i in range(0, len(words), 20000)]
    book = "/usr/share/doc/debian-handbook/html/zh-*/**/*.html"
    pages = files(book, chinese)
    train = code[::2] + manual[::2] + words[::2] + pages[::2]
    english = first(code[1::2], 6_500_000) + first(manual[1::2], 3_000_000)
    return train, english + first(words[1::2], 4_000_000), pages[1::2]


def write(path, texts):
    with open(path, "wb") as file:
        for text in texts:
            data = text.encode()
            file.write(struct.pack("<I", len(data)) + data)
    return sum(len(text.encode()) for text in texts)


def command(name, binary, tokenizer, texts, ids):
    if name.startswith("longhaul"):
        threads = 2 if "2" in name else 1
        return [binary, "encode", tokenizer, texts, PASSES[name], threads, ids]
    peer = {"Hugging Face": "huggingface"}.get(name, name.replace(" ", "-"))
    return [sys.executable, HERE / "peer_tokenize.py", peer, tokenizer, texts, PASSES[name], ids]


def run(arguments):
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


def read_ids(path):
    data, pos, found = pathlib.Path(path).read_bytes(), 0, []
    while pos < len(data):
        (count,) = struct.unpack_from("<I", data, pos)
        found.append(data[pos + 4:pos + 4 + 4 * count])
        pos += 4 + 4 * count
    return found


def compare(names, where):
    """name -> (texts whose ids are Hugging Face's, texts)."""
    truth = read_ids(where / "Hugging Face.ids")
    return {name: (sum(a == b for a, b in zip(read_ids(where / f"{name}.ids"), truth)),
                   len(truth)) for name in names}


def measure(names, rounds, binary, where, texts, size):
    """name -> MB/s of the first pass and of later ones; and what compare says."""
    first_pass, later = {n: [] for n in names}, {n: [] for n in names}
    for turn in range(rounds):
        for name in names:
            seconds = run(command(name, binary, where / "tokenizer", texts, where / f"{name}.ids"))
            first_pass[name].append(size / seconds[0] / 1e6)
            later[name].append(size / statistics.median(seconds[1:] or seconds) / 1e6)
        if turn == 0:
            equal = compare(names, where)
    middle = statistics.median
    return {n: (middle(first_pass[n]), middle(later[n])) for n in names}, equal


def show(title, rates, equal):
    print(f"\n{title}\n\n| | first pass, MB/s | later passes, MB/s | texts with Hugging Face's ids |")
    print("|---|---|---|---|")
    for name, (cold, warm) in rates.items():
        warm = f"{warm:.1f}" if PASSES[name] > 1 else ""
        print(f"| {name} | {cold:.1f} | {warm} | {equal[name][0]} of {equal[name][1]} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("program", help="trains the tokenizer")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for peer in ("tokenizers", "tiktoken", "gigatoken"):
        if importlib.util.find_spec(peer) is None:
            sys.exit(f"bench_tokenize: the peer {peer} is not installed; "
                     ".venv/bin/pip install -r requirements-bench.txt")
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        train, english, pages = corpora()
        lines = "".join(json.dumps({"text": text}) + "\n" for text in train)
        (where / "train.jsonl").write_text(lines)
        subprocess.run([options.program, "data", "train-tokenizer", where / "train.jsonl",
                        "--vocab-size", str(VOCABULARY), "--out", where / "tokenizer"],
                       capture_output=True, check=True)
        size = write(where / "english", english)
        assert size >= 12_000_000, size
        rates, equal = measure(list(PASSES), options.rounds, options.binary, where,
                               where / "english", size)
        show(f"Code and English, {size / 1e6:.1f} MB in {len(english)} texts, vocabulary "
             f"{VOCABULARY}, {options.rounds} rounds:", rates, equal)
        size = write(where / "chinese", pages)
        names = ["longhaul", "Hugging Face", "tiktoken", "gigatoken batch"]
        zh_rates, zh_equal = measure(names, options.rounds, options.binary, where,
                                     where / "chinese", size)
        show(f"Chinese, {size / 1e6:.1f} MB in {len(pages)} texts:", zh_rates, zh_equal)
    ours, theirs = rates["longhaul"], rates["Hugging Face"]
    same = all(e["longhaul"][0] == e["longhaul"][1] for e in (equal, zh_equal))
    same = same and equal["longhaul, 2 threads"][0] == equal["longhaul"][1]
    targets = [
        ("our ids equal Hugging Face's", 1 if same else 0, 1),
        ("first pass against Hugging Face", ours[0] / theirs[0], 15),
        ("first pass against tiktoken", ours[0] / rates["tiktoken"][0], 3),
        ("later passes against gigatoken's encode_files", ours[1] / rates["gigatoken files"][1], 1),
        ("two threads against one, first pass", rates["longhaul, 2 threads"][0] / ours[0], 1.8),
        ("two threads against one, later passes", rates["longhaul, 2 threads"][1] / ours[1], 1.8),
        ("Chinese, first pass against Hugging Face",
         zh_rates["longhaul"][0] / zh_rates["Hugging Face"][0], 8)]
    print("\n| target | at least | here |\n|---|---|---|")
    for name, value, least in targets:
        print(f"| {name} | {least}x | {value:.2f}x{'' if value >= least else ' **MISSED**'} |")
    return 0 if all(value >= least for _, value, least in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
