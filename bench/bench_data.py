"""Compares `longhaul data build` end to end with the pipeline of datasets (load_dataset, map
with the tokenizer, group_texts, save_to_disk) on the same text and tokenizer, and prints a
Markdown table.

    .venv/bin/python bench/bench_data.py build/bin/longhaul WORK [--rounds 3] [--megabytes 40]

The text is Python's own sources and what installed packages hold of sources and text, a
document per file, as JSON lines; the tokenizer is trained on a part of it. The sides take
turns. longhaul's seconds are those of the whole process, the peer's those of its four stages
without Python's start. Every id that the peer keeps is compared with the store's: the peer
drops what makes no whole block of each thousand documents.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time

import numpy
from datasets import Dataset

PEER = pathlib.Path(__file__).resolve().parent / "peer_data.py"
SUFFIXES = {".py", ".pyi", ".txt", ".md", ".rst", ".h", ".hpp", ".cpp", ".cu", ".js", ".html"}
BATCH = 1000
TARGET_RATIO = 50.0
TARGET_BYTES = 4.0


def write_corpus(path, megabytes):
    """JSON lines of about that many bytes of text, in a fixed random order."""
    roots = [sysconfig.get_paths()[key] for key in ("stdlib", "purelib")]
    files = sorted({file for root in roots for file in pathlib.Path(root).rglob("*")
                    if file.suffix in SUFFIXES and file.is_file()})
    random.Random(5).shuffle(files)
    size = 0
    with path.open("w", encoding="utf-8") as out:
        for file in files:
            try:
                text = file.read_text("utf-8")
            except UnicodeDecodeError:
                continue
            if not text.strip():
                continue
            out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            size += len(text.encode())
            if size >= megabytes * 1_000_000:
                return size
    return size


def run(*command):
    begin = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1800)
    seconds = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return seconds, done.stdout


def store_tokens(store):
    """All ids of a store, and where its documents end."""
    info = json.loads((store / "store.json").read_text())
    width = info["token_bytes"]
    ids, ends, before = [], [], 0
    for shard in info["shards"]:
        raw = numpy.fromfile(store / shard["token_file"]["name"], dtype=numpy.uint8)
        raw = numpy.pad(raw.reshape(-1, width), ((0, 0), (0, 4 - width)))
        ids.append(raw.view("<u4").ravel())
        ends.append(numpy.fromfile(store / shard["document_file"]["name"], dtype=numpy.uint64)
                    + numpy.uint64(before))
        before += shard["tokens"]
    return numpy.concatenate(ids), numpy.concatenate(ends).astype(numpy.int64)


def compare_ids(store, saved, block):
    """Exits when an id of the peer is not the store's; returns how many there are."""
    ids, ends = store_tokens(store)
    kept = []
    for first in range(0, len(ends), BATCH):
        begin = 0 if first == 0 else ends[first - 1]
        part = ids[begin:ends[min(first + BATCH, len(ends)) - 1]]
        kept.append(part[:len(part) // block * block])
    ours = numpy.concatenate(kept)
    rows = Dataset.load_from_disk(saved).with_format("numpy")["input_ids"][:]
    theirs = numpy.concatenate(list(rows))
    if len(ours) != len(theirs) or not (ours == theirs).all():
        sys.exit(f"ids differ: {len(ours)} of ours, {len(theirs)} of the peer")
    return len(theirs)


def disk_bytes(directory):
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("longhaul")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--vocab-size", type=int, default=32768)
    parser.add_argument("--block", type=int, default=2048)
    options = parser.parse_args()
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    corpus, tokenizer = work / "corpus.jsonl", work / "tokenizer"
    if not tokenizer.exists():
        write_corpus(work / "sample.jsonl", 12)
        run(options.longhaul, "data", "train-tokenizer", work / "sample.jsonl", "--out", tokenizer,
            "--vocab-size", options.vocab_size)
    size = write_corpus(corpus, options.megabytes)
    ours, theirs = [], []
    for number in range(options.rounds):
        store, saved = work / f"store{number}", work / f"saved{number}"
        for old in (store, saved, pathlib.Path(f"{saved}.cache")):
            shutil.rmtree(old, ignore_errors=True)
        seconds, _ = run(options.longhaul, "data", "build", corpus, "--tokenizer", tokenizer,
                         "--out", store, "--special-tokens", "tokenizer")
        ours.append(seconds)
        theirs.append(json.loads(run(sys.executable, PEER, corpus, tokenizer, saved, "--block",
                                     options.block)[1].splitlines()[-1]))
        compared = compare_ids(store, saved, options.block)
    info = json.loads((store / "store.json").read_text())
    report(options, size, info, ours, theirs, compared, disk_bytes(store), disk_bytes(saved))


def report(options, size, info, ours, theirs, compared, our_bytes, their_bytes):
    tokens = info["tokens"]
    rate = tokens / statistics.median(ours)
    peer_rate = theirs[0]["tokens"] / statistics.median(r["seconds"] for r in theirs)
    ratio, per_token = rate / peer_rate, our_bytes / tokens
    stages = ", ".join(f"{name} {statistics.median(r[name] for r in theirs):.1f} s"
                       for name in ("load", "tokenize", "group", "save"))
    print(f"{size / 1e6:.1f} MB of text, {info['documents']:,} documents, {tokens:,} tokens, "
          f"vocabulary {info['vocab_size']:,}; median of {options.rounds} rounds; "
          f"{compared:,} ids compared, all equal\n")
    print("| | seconds | M tokens/s | bytes on disk a token |\n|---|---|---|---|")
    print(f"| longhaul data build | {statistics.median(ours):.2f} | {rate / 1e6:.2f} | "
          f"{per_token:.2f} |")
    print(f"| datasets ({stages}) | {statistics.median(r['seconds'] for r in theirs):.1f} | "
          f"{peer_rate / 1e6:.3f} | {their_bytes / theirs[0]['tokens']:.2f} |")
    for what, reached, target, fine in (
            ("ratio of tokens per second", ratio, TARGET_RATIO, ratio >= TARGET_RATIO),
            ("bytes on disk a token", per_token, TARGET_BYTES, per_token <= TARGET_BYTES)):
        print(f"\n{what}: {reached:.2f}, target {target:g}{'' if fine else '  **MISSED**'}")


if __name__ == "__main__":
    main()
