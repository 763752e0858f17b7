#!/usr/bin/env python3
"""What supervising thousands of ranks costs: the supervisor as it is, its agents, and ranks
that only keep their records.

    .venv/bin/python bench/bench_control.py build/bin/longhaul_control_tool [--restarts 3]

Each "machine" is this one, under another number of its loopback. Up to --real nodes an agent
is a process as `longhaul agent` is, and each rank a process that a kill ends; above, players
speak for 256 nodes each over as many connections, and make up what agents would report.
Both share this machine's cores with the supervisor. A rank is killed when all have been at
rest; the ranks' own time (fork, first record) is taken from a restart's. Prints Markdown.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile


def measure(tool, nodes, per_node=8, restarts=3, rest=8.0, played=False, limit=580):
    """What the tool says of one run."""
    # Records are for memory, as on a node; the directory goes with all that is in it.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as where:
        words = [str(tool), "supervise", where, nodes, per_node, restarts, rest]
        done = subprocess.run([*map(str, words), *["played"] * played], capture_output=True,
                              text=True, timeout=limit)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            raise RuntimeError(f"ended with {done.returncode}: {done.stdout[-2000:]}"
                               f"{done.stderr[-2000:]}")
        return json.loads(lines[-1])


def row(nodes, per_node, result, played):
    first, *again = result["starts"]
    rest = {key: statistics.median(one[key] for one in result["rests"])
            for key in result["rests"][0]}
    restart = {key: statistics.median(one[key] for one in again) for key in again[0]}
    return (f"| {nodes * per_node:,}{' (played)' if played else ''} | {nodes:,} "
            f"| {result['forked'] + first['control']:.1f} "
            f"| {rest['cpu']:.2f} | {result['peak_bytes'] / 1e6:.0f} "
            f"| {rest['wire_bytes_per_second'] / 1e6:.2f} "
            f"| {restart['verdict']:.2f} | {restart['control']:.1f}, "
            f"at most {max(one['control'] for one in again):.1f} | {restart['cpu']:.2f} "
            f"| {result['status_bytes'] / 1e6:.2f} | {1000 * result['status_seconds']:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--nodes", type=int, nargs="+", default=[32, 128, 512, 1024, 4096])
    parser.add_argument("--per-node", type=int, default=8)
    parser.add_argument("--restarts", type=int, default=2, help="2 at most where played")
    parser.add_argument("--rest", type=float, default=10.0, help="seconds of each rest")
    parser.add_argument("--real", type=int, default=512, help="nodes that are not played")
    options = parser.parse_args()
    tool = pathlib.Path(options.tool).resolve()
    print("| ranks | agents | start, s | supervisor at rest, cores | memory, MB | wire, MB/s "
          "| death to kill order, s | control time of a restart, s | of a core-second "
          "| status.json, MB | ms |\n" + "|---" * 11 + "|")
    for nodes in options.nodes:
        played = nodes > options.real
        result = measure(tool, nodes, options.per_node, options.restarts, options.rest, played)
        print(row(nodes, options.per_node, result, played), flush=True)


if __name__ == "__main__":
    main()
