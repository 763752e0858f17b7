#!/usr/bin/env python3
"""Predicts the steps of twelve runs on this machine by `longhaul plan`, and measures them.

  tools/predicted_times.py [PART OF A NAME]     an hour on a machine that does nothing else

Each run is measured between two measurements of the machine (`longhaul bench`), which the plan is made with. What is
predicted is the mean of both. Prints a table for docs/benchmarks.md. Exits with 1 unless each prediction is within
15 %, and the order is right in nine of ten pairs whose measured times differ by more than 10 %. The programs are those
in build/bin, or in $LONGHAUL_BIN_DIR.
"""

import itertools
import json
import pathlib
import statistics
import sys
import tempfile

from auto_against_hand import LLAMA, RUN, call, step_seconds, write_machine

STEPS, BENCH_STEPS = 9, 5
SEQ_LEN, SEQUENCES = 512, 8
HEADS = {"head_dim": 64, "max_position_embeddings": SEQ_LEN}
# Heads of 64 features, and a vocabulary that is a share of the whole as in larger models.
MODELS = {
    "9M": {**LLAMA, **HEADS, "num_attention_heads": 4, "num_key_value_heads": 2},
    "28M": {**LLAMA, **HEADS, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 10,
            "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 16000},
    "50M": {**LLAMA, **HEADS, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 12,
            "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 16000},
    "125M": {**LLAMA, **HEADS, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
             "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 32000},
}
BF16, FP32 = "precision.compute=bf16", "precision.compute=fp32"
# (model, ranks, settings)
RUNS = [
    ("9M", 1, [FP32, "batch.micro_size=4"]),
    ("9M", 1, [BF16, "batch.micro_size=8"]),
    ("9M", 1, [FP32, "batch.micro_size=4", "memory.recompute=full"]),
    ("28M", 1, [FP32, "batch.micro_size=1"]),
    ("28M", 1, [BF16, "batch.micro_size=4", "memory.recompute=selective"]),
    ("50M", 1, [BF16, "batch.micro_size=2"]),
    ("50M", 1, [BF16, "batch.micro_size=2", "memory.recompute=full"]),
    ("125M", 1, [BF16, "batch.micro_size=4"]),
    ("28M", 2, [BF16, "batch.micro_size=2", "parallel.zero=1"]),
    ("50M", 2, [BF16, "batch.micro_size=2", "parallel.zero=3"]),
    ("28M", 2, [FP32, "batch.micro_size=2", "parallel.tp=2"]),
    ("50M", 2, [BF16, "batch.micro_size=1", "parallel.pp=2"]),
]


def name_of(run):
    model, ranks, sets = run
    return f"{model}, {ranks} rank{'s' * (ranks > 1)}, {', '.join(text.split('.')[1] for text in sets)}"


def machine_now(place, name, sets, ranks):
    """Measures the machine with as many ranks as the run has, and the run's exchanges."""
    call(place, "bench", "run.toml", "--steps", BENCH_STEPS, *sets, "--out", "bench.toml", ranks=ranks)
    text, *exchanges = (place / "bench.toml").read_text().split("\n[[exchange]]\n")
    write_machine(place / name, text, exchanges, ranks)


def planned_seconds(place, name, sets, ranks):
    said = call(place, "plan", "run.toml", "--ranks", ranks, "--hardware", name, "--price", 0, "--json", *sets)
    return json.loads(said)["step"]["seconds"]


def measure(place, run):
    """Returns the predicted and the measured seconds of a step."""
    model, ranks, texts = run
    sets = [word for text in texts for word in ("--set", text)]
    (place / "model").mkdir(parents=True)
    (place / "model/config.json").write_text(json.dumps(MODELS[model]))
    (place / "run.toml").write_text(RUN.format(steps=STEPS, seq_len=SEQ_LEN, sequences=SEQUENCES))
    machine_now(place, "before.toml", sets, ranks)
    took = step_seconds(place, sets, "run", ranks)
    machine_now(place, "after.toml", sets, ranks)
    return statistics.mean(planned_seconds(place, name, sets, ranks) for name in ("before.toml", "after.toml")), took


def main():
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    found = []
    print("| run | predicted, s | measured, s | predicted / measured |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number, run in enumerate(RUNS):
            if part not in name_of(run):
                continue
            predicted, took = measure(pathlib.Path(folder) / str(number), run)
            found.append((predicted, took))
            print(f"| {name_of(run)} | {predicted:.4f} | {took:.4f} | {predicted / took:.2f} |", flush=True)
    near = sum(abs(predicted / took - 1) <= 0.15 for predicted, took in found)
    pairs = [(a, b) for a, b in itertools.combinations(sorted(found, key=lambda one: one[1]), 2) if b[1] > 1.1 * a[1]]
    ordered = sum(a[0] < b[0] for a, b in pairs)
    print(f"\n{near} of {len(found)} within 15 %; the order is right in {ordered} of {len(pairs)} pairs that differ by "
          "more than 10 %")
    sys.exit(near < len(found) or ordered < 0.9 * len(pairs))


if __name__ == "__main__":
    main()
