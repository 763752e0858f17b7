#!/usr/bin/env python3
"""What keeping the state in a neighbour's memory costs, and what a restart from it gains.

    .venv/bin/python bench/bench_peer_memory.py build/bin/longhaul [--rounds 3]

Two ranks pretend to be on two machines. Prints Markdown: seconds per step (from record to
record, so that the copy is in it) without and with it; then both ranks are killed, and the
restart from memory is set against one from the checkpoint of the same step, its files out
of the page cache.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMP_NUM_THREADS="1")
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8000,
    "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "initializer_range": 0.02, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}
CONFIG = """
[run]
dir = "{dir}"
steps = {steps}
device = "cpu"
threads = 1
[model]
config = "{model}"
[data]
seq_len = 256
train = [{{ synthetic = 2000 }}]
[batch]
global_size = 8
micro_size = 2
[parallel]
zero = 1
[optimizer]
lr = 1e-3
[schedule]
kind = "constant"
warmup_steps = 1
[checkpoint]
every = {every}
keep = 1
[validation]
every = 0
batches = 1
[resilience]
peer_memory_every = {memory}
"""


LEAST_STEPS = 4


class Bench:
    def __init__(self, binary, path, shared):
        self.binary, self.path, self.shared = binary, path, shared
        (path / "model").mkdir()
        (path / "model" / "config.json").write_text(json.dumps(MODEL))
        self.config, self.run_dir = path / "run.toml", path / "run"

    def write(self, steps, memory, every=0):
        self.config.write_text(CONFIG.format(dir=self.run_dir, steps=steps, memory=memory,
                                             every=every, model=self.path / "model"))

    def start(self):
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        for node in range(2):
            command += [":"] if node else []
            command += ["-n", "1", "env", f"LONGHAUL_NODE_NAME=n{node}",
                        f"LONGHAUL_MEMORY_DIR={self.shared}/n{node}", self.binary, "train",
                        str(self.config)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True, env=ENVIRONMENT)

    def train(self):
        process = self.start()
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors

    def records(self):
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        return [r for r in map(json.loads, lines) if "grad_norm" in r]

    def events(self, name):
        lines = (self.run_dir / "events.jsonl").read_text().splitlines()
        return [e for e in map(json.loads, lines) if e["event"] == name]

    def step_seconds(self, steps, memory):
        """Mean seconds per step after the second, the copy's share, and its waiting."""
        shutil.rmtree(self.run_dir, ignore_errors=True)
        self.write(steps, memory)
        self.train()
        times = [r["time"] for r in self.records()]
        seconds = statistics.median(b - a for a, b in zip(times[2:], times[3:]))
        told = self.events("peer_memory")
        if not told:
            return seconds, 0.0, 0.0, 0
        kept = told[-1]
        return (seconds, kept["seconds"] / kept["steps"], kept["waited"] / kept["steps"],
                kept["bytes"])

    def restart(self, from_memory):
        """Seconds of reading, and from process start to the end of set-up."""
        shutil.rmtree(self.run_dir, ignore_errors=True)
        self.write(1000, memory=4, every=4)
        process = self.start()
        newest = self.run_dir / "checkpoints" / "step_00000004" / "manifest.json"
        limit = time.monotonic() + 300
        while not newest.exists() or len(self.records()) < 5:
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.05)
        pids = [int(p.name) for p in pathlib.Path("/proc").glob("[0-9]*")
                if child_of(p, process.pid)]
        for pid in [*pids, process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.communicate()
        if not from_memory:
            shutil.rmtree(self.shared)
            self.shared.mkdir()
            for file in (self.run_dir / "checkpoints").rglob("*.safetensors"):
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.config.write_text(self.config.read_text().replace(
            'dir = "', 'stop_after = 6\ndir = "', 1))
        self.train()
        log = (self.run_dir / "log.txt").read_text()
        line = [x for x in log.splitlines() if "resume from step 4 in memory" in x
                or "weights, moments and data position" in x][-1]
        assert ("in memory" in line) == from_memory, line
        return (float(re.search(r"read in ([\d.]+) s", line)[1]),
                self.events("start")[-1]["seconds"])


def child_of(path, parent):
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent
    except (OSError, ValueError):
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help=f"at least {LEAST_STEPS}")
    parser.add_argument("--every", type=int, nargs="+", default=[0, 1, 4])
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: no figure comes from less than one round; give 1 "
                     "or more")
    if options.steps < LEAST_STEPS:
        parser.error(f"--steps {options.steps}: a step's time is taken between two records, the "
                     f"first two left out; give {LEAST_STEPS} or more")
    with tempfile.TemporaryDirectory() as where, tempfile.TemporaryDirectory(
            dir="/dev/shm") as shared:
        bench = Bench(options.binary, pathlib.Path(where), pathlib.Path(shared))
        steps = {every: [] for every in options.every}
        starts = {True: [], False: []}
        for _ in range(options.rounds):
            for every, found in steps.items():
                found.append(bench.step_seconds(options.steps, every))
            for memory, found in starts.items():
                found.append(bench.restart(memory))
        print("| kept every | s/step | copy, ms | of it waiting, ms | MB per machine and copy |")
        print("|---|---|---|---|---|")
        for every, found in steps.items():
            seconds, copy, waited, size = (statistics.median(x) for x in zip(*found))
            print(f"| {every or 'never'} | {seconds:.3f} | {1e3 * copy:.1f} | "
                  f"{1e3 * waited:.1f} | {size / 1e6:.0f} |")
        print("\n| restart from | reading, s | process start to the end of set-up, s |\n|---|---|---|")
        for memory, found in starts.items():
            reading, start = (statistics.median(x) for x in zip(*found))
            print(f"| {'memory' if memory else 'disk'} | {reading:.2f} | {start:.2f} |")


if __name__ == "__main__":
    main()
