#!/usr/bin/env python3
"""Predicts published speeds by `longhaul plan`, and writes the table of docs/planning.md.

  tools/predicted_rows.py             predicts the rows of tools/predicted_rows.toml and writes the table
  tools/predicted_rows.py --causes    prints the causes of each predicted step, and writes nothing

The program is the one in build/bin, or in $LONGHAUL_BIN_DIR. Each row is predicted as the profiles in hardware/ are.
Then each generation of hardware and software is predicted once more, with one fitted figure: the factor of all three
shares of [efficiency] with which the first row of the generation takes as long as was published. That row does not
count. Links, latencies and room stay as they are. The factor is put on [peak], which is the same: a peak counts times
its share, and a share is at most 1.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/planning.md"
ROWS = ROOT / "tools/predicted_rows.toml"
BEGIN, END = "<!-- predicted rows: begin -->", "<!-- predicted rows: end -->"
HEAD = """| row | release | published | predicted | ratio | ratio, fitted | comparison only |
|---|---|---|---|---|---|---|"""


def read_rows():
    return tomllib.loads(ROWS.read_text(encoding="utf-8"))["row"]


SOURCES = list(dict.fromkeys(row["source"] for row in read_rows()))


def plan(row, factor=1.0):
    """Returns what `longhaul plan` says of a row, or the text of its refusal. `factor` is that of the machine's peaks."""
    program = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", ROOT / "build/bin")) / "longhaul"
    sets = list(row.get("set", []))
    if "model" in row:
        sets.append(f"model.override={{ {', '.join(row['model'])} }}")
    profile = (ROOT / f"hardware/{row['hardware']}.toml").read_text(encoding="utf-8")
    before, peak, after = re.split(r"(^\[peak\]$.*?)(?=^\[)", profile, flags=re.M | re.S)
    peak = re.sub(r"(?<= = )[0-9.e+_]+$", lambda found: repr(float(found[0]) * factor), peak, flags=re.M)
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as scaled:
        scaled.write(before + peak + after)
        scaled.flush()
        command = [program, "plan", ROOT / f"recipes/{row['recipe']}.toml", "--ranks", str(row["ranks"]),
                   "--hardware", scaled.name, "--price", "0", "--json"]
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


def ratio_of(row, factor=1.0):
    return speed(row, plan(row, factor))[1]


def fitted_factor(row):
    """Returns the factor of the peaks with which a row's step takes as long as was published, to a thousandth."""
    low, high = 0.1, 10.0
    if not ratio_of(row, high) < 1 < ratio_of(row, low):
        sys.exit(f"{row['name']}: no factor of the peaks from {low} to {high} gives the published time")
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if ratio_of(row, middle) < 1 else (middle, high)
    return (low * high) ** 0.5


def fit(rows, plans):
    """Returns the factor of each generation of two rows or more, and the ratio of each of their rows by its name. The
    row that fits has none."""
    generations = {}
    for row, planned in zip(rows, plans):
        if isinstance(planned, dict):
            generations.setdefault(row["generation"], []).append(row)
    factors, ratios = {}, {}
    for generation, (first, *others) in generations.items():
        if not others:
            continue
        factors[generation] = fitted_factor(first)
        ratios[first["name"]] = None
        ratios.update({row["name"]: ratio_of(row, factors[generation]) for row in others})
    return factors, ratios


def figure(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def published(row):
    return f"{figure(row['published'])} {row['unit']}"


def told(row):
    """Returns the cells that the rows' file alone decides. A source's address stands below the table."""
    return f"{row['name']} | [{row['release']}][{SOURCES.index(row['source'])}] | {published(row)}"


def line(row, planned, ratios=None):
    only = "yes" if row.get("comparison_only") else ""
    if planned is None:
        return f"| {told(row)} | not counted: {row['not_counted']} | | | {only} |"
    if isinstance(planned, str):
        return f"| {told(row)} | refused: {planned.replace('|', '/')} | | | {only} |"
    value, ratio = speed(row, planned)
    again = ""
    if ratios and row["name"] in ratios:
        again = "fits" if ratios[row["name"]] is None else f"{ratios[row['name']]:.2f}"
    return f"| {told(row)} | {figure(value)} | {ratio:.2f} | {again} | {only} |"


def off(what, counted):
    """Returns how far off the ratios of some rows are, in words."""
    middle = statistics.median(abs(ratio - 1) for _, ratio in counted)
    worst, most = max(counted, key=lambda one: abs(one[1] - 1))
    return (f"{what}, {len(counted)} rows count. Their predicted times are off by {100 * middle:.0f} % in the median, "
            f"and by {100 * abs(most - 1):.0f} % in the worst row ({worst['name']}).")


def summary(rows, plans, factors, ratios):
    """Returns how far off the rows are that count, uncalibrated and with the fitted factors."""
    counted = [(row, speed(row, planned)[1]) for row, planned in zip(rows, plans)
               if isinstance(planned, dict) and not row.get("comparison_only")]
    fitted = [(row, ratios[row["name"]]) for row, _ in counted if ratios.get(row["name"]) is not None]
    said = "\n".join(textwrap.fill(off(*of), 118) for of in (("Uncalibrated", counted), ("Fitted", fitted)))
    figures = "\n".join(f"- {name}: {factor:.2f}" for name, factor in factors.items())
    return f"{said}\nEach generation reaches this share of the profile's efficiency:\n\n{figures}"


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
    factors, ratios = fit(rows, plans)
    table = "\n".join([HEAD, *(line(row, planned, ratios) for row, planned in zip(rows, plans))])
    links = "\n".join(f"[{number}]: {source}" for number, source in enumerate(SOURCES))
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n\n{summary(rows, plans, factors, ratios)}\n\n{links}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
