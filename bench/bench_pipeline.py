"""Compares the pipeline schedules with torch.distributed.pipelining on one machine and
prints a Markdown table.

    .venv/bin/python bench/bench_pipeline.py build/bench/bench_pipeline [--rounds 3]

Both sides run four processes whose stages sleep instead of computing: a forward takes one
unit, a backward two. A bubble is the share of a step in which a rank is in no action, mean
over the ranks; messages and dispatch are part of it. The sides run one after the other in each
round; figures are of the shortest step.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

PEER = pathlib.Path(__file__).resolve().parent / "peer_pipeline.py"


def run(command):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True,
                          text=True, timeout=1800)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def key_of(row):
    return row["micro_batches"], row["schedule"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="bench_pipeline")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--unit-ms", type=float, default=20.0)
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    ours, peers = {}, {}
    for _ in range(options.rounds):
        for row in run(["mpirun", "--oversubscribe", "-n", options.ranks, options.program,
                        options.unit_ms, options.steps]):
            ours.setdefault(key_of(row), []).append(row)
        for row in run([sys.executable, PEER, "--ranks", options.ranks, "--unit-ms",
                        options.unit_ms, "--steps", options.steps]):
            peers.setdefault(key_of(row), []).append(row)
    print(f"Bubbles in percent of a step, {options.ranks} ranks, unit {options.unit_ms} ms:\n")
    print("| micro batches | schedule | formula | simulated | longhaul | seconds | "
          "torch | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for key, rows in ours.items():
        best = min(rows, key=lambda r: r["seconds"])
        peer = min(peers.get(key, []), key=lambda r: r["seconds"], default=None)
        theirs = f"{peer['bubble']:.1f} | {peer['seconds']:.3f}" if peer else " | "
        print(f"| {key[0]} | {key[1]} | {best['formula']:.1f} | {best['simulated']:.1f} | "
              f"{best['bubble']:.1f} | {best['seconds']:.3f} | {theirs} |")


if __name__ == "__main__":
    main()
