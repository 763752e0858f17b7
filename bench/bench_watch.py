#!/usr/bin/env python3
"""What watching costs: `longhaul launch` (supervisor, records, replica checksums as they come)
against plain mpirun with none of it.

    .venv/bin/python bench/bench_watch.py build/bin/longhaul [--pairs 40]

Both runs live all the time and take turns of a few steps: whoever is not at work is stopped
(SIGSTOP, all processes of it). So both see the machine in the same minutes, which on a busy
or shared one differ by far more than what is measured. The order is watched, plain, plain,
watched ...; the step in which a turn begins is left out. Prints Markdown: seconds of a step,
how much more the watched ones take (median of the pairs, and of all steps together), and
the interval that 95 of 100 draws of the pairs lie in; and the supervisor's own time.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import tempfile
import time

from bench_peer_memory import CONFIG, ENVIRONMENT, MODEL

SETS = {True: ["--set", "resilience.peer_memory_every=0",
               # A run that waits for its turn does not hang.
               "--set", "resilience.hang_timeout_s=3600"],
        False: ["--set", "resilience.peer_memory_every=0",
                "--set", "resilience.checksum_every=0"]}
WAIT_SECONDS = 600


def descendants(pid):
    """A process and all that it has started, as far as they live."""
    found = [pid]
    for parent in found:
        try:
            children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += map(int, children.split())
    return found


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Run:
    """A run that works in turns."""

    def __init__(self, binary, path, watched):
        path.mkdir()
        (path / "model").mkdir()
        (path / "model" / "config.json").write_text(json.dumps(MODEL))
        config = path / "run.toml"
        config.write_text(CONFIG.format(dir=path / "run", steps=1_000_000, memory=0, every=0,
                                        model=path / "model"))
        command = ([binary, "launch", "-n", "2", "--mpirun=--bind-to", "--mpirun=core"]
                   if watched else
                   ["mpirun", "-n", "2", "--bind-to", "core", binary, "train"])
        self.metrics = path / "run" / "metrics.jsonl"
        self.errors = open(path / "errors", "w+")
        self.process = subprocess.Popen([*command, str(config), *SETS[watched]],
                                        stdout=subprocess.DEVNULL, stderr=self.errors,
                                        env=ENVIRONMENT)
        self.turn(2)

    def send(self, number):
        for pid in descendants(self.process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def times(self, offset):
        if not self.metrics.exists():
            return []
        with open(self.metrics) as file:
            file.seek(offset)
            lines = [line for line in file.read().splitlines() if line.endswith("}")]
        return [r["time"] for r in map(json.loads, lines) if "grad_norm" in r]

    def turn(self, steps):
        """Mean seconds of so many steps."""
        offset = self.metrics.stat().st_size if self.metrics.exists() else 0
        self.send(signal.SIGCONT)
        limit = time.monotonic() + WAIT_SECONDS
        while len(times := self.times(offset)) < steps + 1:
            assert self.process.poll() is None and time.monotonic() < limit, self.said()
            time.sleep(0.1)
        self.send(signal.SIGSTOP)
        return (times[steps] - times[0]) / steps

    def said(self):
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def end(self):
        self.send(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.wait()


def percent(watched, plain):
    return 100 * (statistics.median(a / b for a, b in zip(watched, plain)) - 1)


def interval(watched, plain, draws=2000):
    """Where 95 of 100 medians of as many pairs drawn from these lie."""
    choice = random.Random(1)
    pairs = list(zip(watched, plain))
    found = sorted(percent(*zip(*choice.choices(pairs, k=len(pairs)))) for _ in range(draws))
    return found[draws // 40], found[-draws // 40]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    seconds = {True: [], False: []}
    runs = {}
    with tempfile.TemporaryDirectory() as where:
        try:
            for watched in (True, False):
                runs[watched] = Run(binary, pathlib.Path(where) / str(watched), watched)
            supervisor = runs[True].process.pid
            before, at_work = cpu_seconds(supervisor), 0.0
            for pair in range(options.pairs):
                for watched in (True, False) if pair % 2 == 0 else (False, True):
                    begin = time.monotonic()
                    seconds[watched].append(runs[watched].turn(options.steps))
                    at_work += (time.monotonic() - begin) * watched
            share = 100 * (cpu_seconds(supervisor) - before) / at_work
        finally:
            for run in runs.values():
                run.end()
    low, high = interval(seconds[True], seconds[False])
    more = percent(seconds[True], seconds[False])
    together = 100 * (sum(seconds[True]) / sum(seconds[False]) - 1)
    print("| pairs | watched, s/step | plain, s/step | more, median | 95 of 100 "
          "| all steps | supervisor, of a core |\n|---|---|---|---|---|---|---|")
    print(f"| {options.pairs} of {options.steps} steps "
          f"| {statistics.median(seconds[True]):.4f} | {statistics.median(seconds[False]):.4f} "
          f"| {more:+.2f} % | {low:+.2f} to {high:+.2f} % | {together:+.2f} % | {share:.2f} % |")


if __name__ == "__main__":
    main()
