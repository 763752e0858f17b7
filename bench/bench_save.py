#!/usr/bin/env python3
"""What a checkpoint costs: our save against torch.save and PyTorch's DCP, in turn.

    .venv/bin/python bench/bench_save.py build/bench/bench_save [--dir DIR] [--rounds 5]

Prints Markdown rows: how long training stands still, when the state is durable, and both
against what the machine can do at all (a copy in memory, a plain write with fsync).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

PEERS = ["torch.save", "dcp", "dcp-async"]
HERE = pathlib.Path(__file__).parent


def last_line(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--dir", help="a directory on the disk to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[500, 1500])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as where:
        for megabytes in options.megabytes:
            rows = {name: [] for name in ["longhaul", *PEERS]}
            for number in range(options.rounds):
                # Two saves each: the first makes staging memory, the second is measured.
                rows["longhaul"].append(
                    last_line([options.binary, where, str(megabytes), "2"]))
                for kind in PEERS:
                    rows[kind].append(last_line(
                        [sys.executable, HERE / "peer_save.py", kind, where, str(megabytes)]))
                print(f"round {number + 1} of {megabytes} MB:",
                      {k: round(v[-1]["stall_s"], 3) for k, v in rows.items()}, file=sys.stderr)
            report(megabytes, rows)


def report(megabytes, rows):
    middle = {name: {key: statistics.median(r[key] for r in found)
                     for key in found[0] if key != "kind"} for name, found in rows.items()}
    ours = middle["longhaul"]
    print(f"| {megabytes} MB | stall s | against ours | durable s | of the plain write's rate |")
    print("|---|---|---|---|---|")
    for name, row in middle.items():
        print(f"| {name} | {row['stall_s']:.3f} | {row['stall_s'] / ours['stall_s']:.1f}x | "
              f"{row['durable_s']:.2f} | {ours['raw_write_s'] / row['durable_s']:.2f} |")
    print(f"| a copy in memory | {ours['copy_s']:.3f} | {ours['copy_s'] / ours['stall_s']:.2f}x | | |")
    print(f"| a plain write with fsync | | | {ours['raw_write_s']:.2f} | 1 |\n")


if __name__ == "__main__":
    main()
