"""Draws the cases of cases.jsonl and records what `longhaul train` says to each.

    LONGHAUL_BIN_DIR=build/bin OMP_NUM_THREADS=1 python tests/verdicts/record_verdicts.py

Up to 8 ranks a case is run, one step on CPUs (`by` is "train"); all of them take 20 to 30 minutes
on two cores. More ranks cannot be started here: those cases take the verdict of rules.py (`by` is
"rules"), which has to be that of every case before them. With several ranks the words are those of
the lowest rank that has any, without its number.
"""

import argparse
import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from case_files import read_cases, verdict_of, write_case  # noqa: E402
from draws import Draws, draw_case  # noqa: E402
from large_draws import draw_large  # noqa: E402
from mistakes import MISTAKES  # noqa: E402
from programs import command_of  # noqa: E402
from rules import ruling  # noqa: E402

HERE = pathlib.Path(__file__).parent
RECORD = HERE / "cases.jsonl"
SEED, SMALL, LARGE = 20, 500, 100
LIMIT = 120  # seconds; a run takes about one for each rank
TRIES = 3  # of a refusal that was cut off before rank 0 could say its own words


def draw_small(seed, number):
    """Draws a case. Every second case is made wrong, some in two ways, and each mistake gets its
    turn."""
    names = list(MISTAKES)
    aims = {names[number // 2 % len(names)]} if number % 2 else set()
    chosen = Draws(f"{seed} {number}")
    if aims and chosen.chance(0.3):
        aims.add(chosen.pick(names))
    for attempt in range(1000):
        draws = Draws(f"{seed} {number} {attempt}")
        case, axes = draw_case(draws)
        if all(MISTAKES[name](draws, case, axes) is not False for name in names if name in aims):
            return {**case, "aims": sorted(aims)} if aims else case
    raise SystemExit(f"case {number}: no layout has {aims}")


def draw_all():
    cases = [draw_small(SEED, n) for n in range(SMALL)] + draw_large(SEED, LARGE)
    return [{"id": i, **case} for i, case in enumerate(cases)]


def train_verdict(case, path):
    machines = list(case["machines"]) if "machines" in case else 1
    command, environment = command_of("longhaul", ["train", "run.toml"], case["ranks"], machines)
    for _ in range(TRIES):
        shutil.rmtree(path, ignore_errors=True)
        write_case(case, path)
        # mpirun ends its ranks on SIGTERM, but not when it is killed.
        result = subprocess.run(["timeout", str(LIMIT), *command], capture_output=True,
                                text=True, cwd=path, env=environment)
        if "error: rank " not in result.stderr or "error: rank 0 " in result.stderr:
            break
    return verdict_of(result)


def print_counts(cases):
    counts = collections.Counter(ruling(case)[1] for case in cases[:SMALL])
    large = collections.Counter(ruling(case)[1] for case in cases[SMALL:])
    for name in sorted(counts | large, key=lambda n: (-counts[n], n)):
        print(f"{name:40} {counts[name]:4} {large[name]:4}")


def known_verdicts():
    """The verdicts of an existing record, by what was drawn."""
    known = {}
    for case in read_cases(RECORD):
        verdict, by = case.pop("verdict"), case.pop("by")
        if by == "train":
            known[json.dumps(case)] = verdict
    return known


def record(cases, known, path):
    for case in cases:
        begin = time.monotonic()
        if case["id"] >= SMALL:
            verdict, by = ruling(case)[0], "rules"
        else:
            verdict, by = known.get(json.dumps(case)) or train_verdict(case, path), "train"
        print(case["id"], f"{time.monotonic() - begin:.1f} s", verdict, flush=True)
        yield {**case, "verdict": verdict, "by": by}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draw", action="store_true", help="only count what would be drawn")
    parser.add_argument("--keep", action="store_true", help="do not run again what is recorded")
    options = parser.parse_args()
    cases = draw_all()
    print_counts(cases)
    if options.draw:
        return
    known = known_verdicts() if options.keep else {}
    with tempfile.TemporaryDirectory() as scratch:
        recorded = list(record(cases, known, pathlib.Path(scratch) / "run"))
    lines = [json.dumps(case, separators=(",", ":")) for case in recorded]
    RECORD.write_text("\n".join(lines) + "\n")
    wrong = [case["id"] for case in recorded if ruling(case)[0] != case["verdict"]]
    print(f"{len(wrong)} verdicts are not those of rules.py: {wrong}")


if __name__ == "__main__":
    main()
