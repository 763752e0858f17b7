"""Measures the processor time that JSON files of many objects cost to read, and prints a Markdown
table. Twice as many objects should take twice the time.

    .venv/bin/python bench/bench_json.py build/bin/longhaul WORK [--most 128000] [--rounds 3]

The files are the header of a safetensors file of so many tensors, an index of weights, a tekken.json
and a tokenizer.json of so many tokens, of which every sixteenth is an added token. The time is that
of the whole process, without what it needs for the smallest file of all.
"""

import argparse
import json
import pathlib
import resource
import struct
import subprocess

FEW = 10
KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


@kind
def safetensors(work, count):
    header = json.dumps({f"model.layers.{i}.weight": {
        "dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(count)}).encode()
    path = work / "many.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * count))
    return ["inspect", path]


@kind
def index(work, count):
    (work / "model").mkdir(exist_ok=True)
    (work / "model/config.json").write_text('{"model_type": "llama"}')
    (work / "model/model.safetensors.index.json").write_text(json.dumps(
        {"weight_map": {f"model.layers.{i}.weight": "a.safetensors" for i in range(count)}}))
    return ["inspect", work / "model"]


@kind
def tekken(work, count):
    path = work / "tekken.json"
    path.write_text(json.dumps({"config": {}, "vocab": [
        {"rank": i, "token_bytes": "AAAA", "token_str": None} for i in range(count)]}))
    (work / "a.txt").write_text("a")
    return ["data", "build", work / "a.txt", "--tokenizer", path, "--out", work / "out"]


@kind
def tokenizer(work, count):
    vocab = {chr(97 + i): i for i in range(26)}
    vocab |= {f"{chr(97 + i % 26)}{i}": i for i in range(26, count + 26)}
    added = [{"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for token, id in vocab.items() if id % 16 == 0]
    (work / "tokenizer.json").write_text(json.dumps({
        "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None, "decoder": None,
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": None}}))
    return ["inspect", work / "tokenizer.json"]


def seconds(binary, words):
    """User and system time of a command, whatever it says of the file."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 78), done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("binary")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=128_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    counts = [arguments.most // 4, arguments.most // 2, arguments.most]
    print("| file | " + " | ".join(f"{count:,}" for count in counts) + " |")
    print("|---" * (len(counts) + 1) + "|")
    for name, write in KINDS.items():
        times = []
        for count in [FEW, *counts]:
            words = write(arguments.work, count)
            times.append(min(seconds(arguments.binary, words) for _ in range(arguments.rounds)))
        print(f"| {name} | " + " | ".join(f"{max(t - times[0], 0):.2f} s" for t in times[1:]) + " |")


if __name__ == "__main__":
    main()
