#!/usr/bin/env python3
"""What watching costs: `longhaul launch` (supervisor, records, replica checksums as they come)
against plain mpirun with none of it.

    .venv/bin/python bench/bench_watch.py build/bin/longhaul [--rounds 5]

Two comparisons, both in Markdown:
  whole runs  watched and plain runs take turns; median seconds of a step of each, the median
              of the rounds' ratios and their spread;
  in one run  the supervisor is stopped (SIGSTOP) for every other block of steps, so that
              everything but it is the same; the same ratio, by blocks.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

from bench_peer_memory import CONFIG, ENVIRONMENT, MODEL

WATCHED = ["--set", "resilience.peer_memory_every=0"]
PLAIN = [*WATCHED, "--set", "resilience.checksum_every=0"]


class Bench:
    def __init__(self, binary, path):
        self.binary, self.path = binary, path
        (path / "model").mkdir()
        (path / "model" / "config.json").write_text(json.dumps(MODEL))
        self.run_dir, self.config = path / "run", path / "run.toml"

    def start(self, watched, steps):
        shutil.rmtree(self.run_dir, ignore_errors=True)
        self.config.write_text(CONFIG.format(dir=self.run_dir, steps=steps, memory=0, every=0,
                                             model=self.path / "model"))
        command = ([self.binary, "launch", "-n", "2", "--mpirun=--bind-to", "--mpirun=core"]
                   if watched else
                   ["mpirun", "-n", "2", "--bind-to", "core", self.binary, "train"])
        return subprocess.Popen([*command, str(self.config), *(WATCHED if watched else PLAIN)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                env=ENVIRONMENT)

    def times(self):
        path = self.run_dir / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [r["time"] for r in map(json.loads, lines) if "grad_norm" in r]

    def whole(self, watched, steps):
        process = self.start(watched, steps + 4)
        _, errors = process.communicate(timeout=1200)
        assert process.returncode == 0, errors
        return statistics.median(steps_of(self.times()[3:]))

    def blocks(self, blocks, steps):
        """Median step with the supervisor at work, and with it stopped, block by block."""
        process = self.start(True, 3 + blocks * (steps + 1) + 1)
        on, off = [], []
        try:
            for block in range(blocks):
                stopped = block % 2 == 1
                begin = 3 + block * (steps + 1)  # the step in which it changes is left out
                self.wait_for(begin, process)
                os.kill(process.pid, signal.SIGSTOP if stopped else signal.SIGCONT)
                self.wait_for(begin + steps + 1, process)
                times = self.times()[begin:begin + steps + 1]
                (off if stopped else on).append(statistics.median(steps_of(times)))
        finally:
            os.kill(process.pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=1200)
        assert process.returncode == 0, errors
        return on, off

    def wait_for(self, records, process):
        limit = time.monotonic() + 1200
        while len(self.times()) < records:
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.2)


def steps_of(times):
    return [b - a for a, b in zip(times, times[1:])]


def row(name, on, off):
    ratios = sorted(100 * (a / b - 1) for a, b in zip(on, off))
    print(f"| {name} | {statistics.median(on):.4f} | {statistics.median(off):.4f} | "
          f"{statistics.median(ratios):+.2f} % | {ratios[0]:+.2f} to {ratios[-1]:+.2f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of a run or a block")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        bench = Bench(options.binary, pathlib.Path(where))
        on, off = [], []
        for _ in range(options.rounds):
            on.append(bench.whole(True, options.steps))
            off.append(bench.whole(False, options.steps))
        print("| | watched, s/step | not | more | of single pairs |\n|---|---|---|---|---|")
        row("whole runs", on, off)
        row("in one run, supervisor stopped in turns",
            *bench.blocks(2 * options.rounds, options.steps))


if __name__ == "__main__":
    main()
