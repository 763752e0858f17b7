#!/usr/bin/env python3
"""How long `longhaul report` takes for a long run, and how large its page is.

    .venv/bin/python3 bench/bench_report.py build/bin/longhaul [--steps 100000]

The runs are made up: noisy figures, ten spikes, ten validations and a restart. Prints Markdown: the
page's size, and the median and the longest time of the rounds, for one run and for two over each
other.
"""

import argparse
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))
import made_up_run  # noqa: E402


def write_run(directory, steps, seed):
    """A made-up run whose figures have the digits and the noise of measured ones."""
    draw = random.Random(seed)
    plain = made_up_run.step_record

    def noisy(step, attempt, now):
        record = plain(step, attempt, now)
        spike = 3.0 if step % max(1, steps // 10) == 7 else 1.0
        for key in ("loss", "grad_norm", "step_time_s", "tokens_per_s", "mfu"):
            record[key] *= spike * draw.gauss(1.0, 0.02)
        record["host_anonymous_bytes"] = 3 * 10**9 + draw.randrange(10**7)
        record["host_file_bytes"] = 10**9 + draw.randrange(10**7)
        return record

    made_up_run.step_record = noisy
    try:
        return made_up_run.write_run(directory, steps)
    finally:
        made_up_run.step_record = plain


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| page | size | median | longest |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as where:
        runs = [write_run(pathlib.Path(where) / name, options.steps, name) for name in "ab"]
        page = pathlib.Path(where) / "page.html"
        for count in (1, 2):
            seconds = []
            for _ in range(options.rounds):
                begin = time.monotonic()
                subprocess.run([options.binary, "report", *runs[:count], "--out", page],
                               check=True, stdout=subprocess.DEVNULL)
                seconds.append(time.monotonic() - begin)
            print(f"| {count} of {options.steps:,} steps | {page.stat().st_size / 1e6:.2f} MB "
                  f"| {statistics.median(seconds):.2f} s | {max(seconds):.2f} s |")


if __name__ == "__main__":
    main()
