#!/usr/bin/python3
"""Reads the figures that tools/demo.sh compares, one question a call:

    rate RUN                  median tokens per second of the later half of the steps
    last RUN                  the last step written to metrics.jsonl; 0 if there is none
    validation RUN NAME STEP  a set's loss at a step ("last": the last one)
    loss JSON                 the loss that `longhaul eval --json` printed
    entropy STORE             unigram entropy of a token store, nats per token
    resumed RUN STEP          exits 1 unless attempt 2 began after STEP and no step is missing
    below A B [MARGIN]        exits 1 unless A <= B - MARGIN
    equal A B                 exits 1 unless A and B differ by 1e-6 of B at most
"""

import array
import collections
import json
import math
import pathlib
import statistics
import sys


def records(run):
    path = pathlib.Path(run) / "metrics.jsonl"
    if not path.exists():
        return []
    # The last line may be half written while the run goes on.
    whole, _, _ = path.read_text("utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def steps(run):
    return [record for record in records(run) if "validation" not in record]


def rate(run):
    rates = [record["tokens_per_s"] for record in steps(run)]
    return statistics.median(rates[len(rates) // 2:])


def last(run):
    return max((record["step"] for record in steps(run)), default=0)


def validation(run, name, step):
    found = [r for r in records(run) if r.get("validation") == name]
    if step != "last":
        found = [r for r in found if r["step"] == int(step)]
    if not found:
        sys.exit(f"no validation of '{name}' at step {step} in {run}/metrics.jsonl")
    return found[-1]["loss"]


def entropy(store):
    info = json.loads((pathlib.Path(store) / "store.json").read_text("utf-8"))
    kinds = {2: "H", 4: "I"}
    files = [shard["token_file"] for shard in info["shards"]]
    width = sum(file["bytes"] for file in files) // info["tokens"]
    counts = collections.Counter()
    for file in files:
        tokens = array.array(kinds[width])
        tokens.frombytes((pathlib.Path(store) / file["name"]).read_bytes())
        counts.update(tokens)
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values())


def resumed(run, step):
    attempts = collections.defaultdict(list)
    for record in steps(run):
        attempts[record["attempt"]].append(record["step"])
    if len(attempts) != 2:
        sys.exit(f"{len(attempts)} attempts have written steps, 2 were expected")
    first, second = (attempts[key] for key in sorted(attempts))
    # A checkpoint may have been committed between the look and the kill.
    if not int(step) < second[0] <= first[-1] + 1:
        sys.exit(f"attempt 1 did steps {first[0]} to {first[-1]} and had a checkpoint of step "
                 f"{step}, but attempt 2 began with step {second[0]}")
    if sorted(set(first + second)) != list(range(1, second[-1] + 1)):
        sys.exit("some steps are missing")
    return second[0]


def below(a, b, margin="0"):
    if not float(a) <= float(b) - float(margin):
        sys.exit(1)


def equal(a, b):
    if not math.isclose(float(a), float(b), rel_tol=1e-6):
        sys.exit(1)


def loss(text):
    return json.loads(text)["loss"]


QUESTIONS = {f.__name__: f for f in
             (rate, last, validation, entropy, resumed, below, equal, loss)}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in QUESTIONS:
        sys.exit(__doc__)
    answer = QUESTIONS[sys.argv[1]](*sys.argv[2:])
    if answer is not None:
        print(answer)
