#!/usr/bin/env python3
"""Predicts published speeds by `longhaul plan`, and writes the table of docs/planning.md.

  tools/predicted_rows.py             predicts the rows of tools/predicted_rows.toml and writes the table
  tools/predicted_rows.py --causes    prints the causes of each predicted step, and writes nothing

The program is the one in build/bin, or in $LONGHAUL_BIN_DIR. Nothing is fitted.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/planning.md"
ROWS = ROOT / "tools/predicted_rows.toml"
BEGIN, END = "<!-- predicted rows: begin -->", "<!-- predicted rows: end -->"
HEAD = """| row | release | published | predicted | ratio | comparison only |
|---|---|---|---|---|---|"""


def read_rows():
    return tomllib.loads(ROWS.read_text(encoding="utf-8"))["row"]


SOURCES = list(dict.fromkeys(row["source"] for row in read_rows()))


def plan(row):
    """Returns what `longhaul plan` says of a row, or the text of its refusal."""
    program = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", ROOT / "build/bin")) / "longhaul"
    sets = list(row.get("set", []))
    if "model" in row:
        sets.append(f"model.override={{ {', '.join(row['model'])} }}")
    command = [program, "plan", ROOT / f"recipes/{row['recipe']}.toml", "--ranks", str(row["ranks"]),
               "--hardware", ROOT / f"hardware/{row['hardware']}.toml", "--price", "0", "--json"]
    for text in sets:
        command += ["--set", text]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def speed(row, planned):
    """Returns the predicted figure in the row's unit, and the predicted over the published time of a step."""
    step, unit, published = planned["step"], row["unit"], row["published"]
    if unit == "s a step":
        return step["seconds"], step["seconds"] / published
    rate = step["tokens_per_s"]
    if unit == "sequences/s":
        recipe = tomllib.loads((ROOT / f"recipes/{row['recipe']}.toml").read_text(encoding="utf-8"))
        rate /= recipe["data"]["seq_len"]
    elif unit == "tokens/s a device":
        rate /= planned["ranks"]
    return rate, published / rate


def figure(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def published(row):
    return f"{figure(row['published'])} {row['unit']}"


def told(row):
    """Returns the cells that the rows' file alone decides. A source's address stands below the table."""
    return f"{row['name']} | [{row['release']}][{SOURCES.index(row['source'])}] | {published(row)}"


def line(row, planned):
    only = "yes" if row.get("comparison_only") else ""
    if planned is None:
        return f"| {told(row)} | not counted: {row['not_counted']} | | {only} |"
    if isinstance(planned, str):
        return f"| {told(row)} | refused: {planned.replace('|', '/')} | | {only} |"
    value, ratio = speed(row, planned)
    return f"| {told(row)} | {figure(value)} | {ratio:.2f} | {only} |"


def summary(rows, plans):
    """Returns how far off the rows are that count."""
    counted = [(row, speed(row, planned)[1]) for row, planned in zip(rows, plans)
               if isinstance(planned, dict) and not row.get("comparison_only")]
    middle = statistics.median(abs(ratio - 1) for _, ratio in counted)
    worst, most = max(counted, key=lambda one: abs(one[1] - 1))
    ratios = {}
    for row, ratio in counted:
        ratios.setdefault(row["hardware"], []).append(ratio)
    ranges = "; ".join(f"{name} {min(of):.2f} to {max(of):.2f}" for name, of in ratios.items())
    return (f"{len(counted)} rows count. Their predicted times are off by {100 * middle:.0f} % in the median, and by "
            f"{100 * abs(most - 1):.0f} % in the worst row\n({worst['name']}). Ratios by machine:\n{ranges}.")


def print_causes(row, planned):
    print(line(row, planned))
    if isinstance(planned, dict):
        seconds = planned["step"]["seconds"]
        parts = sorted(planned["step"]["parts"], key=lambda part: -part["exposed_s"])
        print("   " + ", ".join(f"{part['cause']} {100 * part['exposed_s'] / seconds:.0f} %" for part in parts
                                if part["exposed_s"] > 0.01 * seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--causes", action="store_true", help="print the causes of each step; write nothing")
    causes = parser.parse_args().causes
    rows = read_rows()
    plans = [None if "not_counted" in row else plan(row) for row in rows]
    if causes:
        for row, planned in zip(rows, plans):
            print_causes(row, planned)
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    table = "\n".join([HEAD, *(line(row, planned) for row, planned in zip(rows, plans))])
    links = "\n".join(f"[{number}]: {source}" for number, source in enumerate(SOURCES))
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n\n{summary(rows, plans)}\n\n{links}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
