"""The command line of tools/same_numbers.sh."""

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import builds
from cases import CASES
from compare import VERDICTS, compare, words_of
from record import Failed, run_case, version_of

FORMAT = "longhaul same_numbers"
EXAMPLES = """\
OLD and NEW are each a directory with the built programs, a git commit, or a file that --record
wrote. A commit is built in build/same_numbers/COMMIT, which stays and is used again until
`git worktree remove --force` takes it away. Cases run one after the other, in three to
six minutes for a program on two cores, which depends on the machine. Of each family one run is
begun by OLD and goes on with NEW.

  tools/same_numbers.sh HEAD~1 HEAD
  tools/same_numbers.sh main build/bin             # what is built here against main
  tools/same_numbers.sh build/bin build/bin        # is it repeatable at all?
  tools/same_numbers.sh main build/bin --only 'tp*' --only resume --keep /tmp/runs
  tools/same_numbers.sh --record before.json build/bin
  tools/same_numbers.sh before.json build/bin

Compared to the last bit: each step's loss, grad_norm and lr as metrics.jsonl has them, validation
losses, and every tensor of the exported weights in fp32. Beside these, as FIGURES: parameters,
memory, FLOPs, the hash of the batches, and the numerics fingerprint. Numbers hold for one
machine: a file from another one may differ for that alone, and its fingerprint says so.
Exit codes: 0 all is the same, 1 something differs, did not run or was not compared, 2 the call
is wrong or a commit does not build."""


class Usage(Exception):
    """The call cannot be carried out."""


def parse(words):
    parser = argparse.ArgumentParser(
        prog="tools/same_numbers.sh", epilog=EXAMPLES,
        description="Whether training still gives the same numbers, bit for bit, here.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sides", nargs="*", metavar="OLD NEW")
    parser.add_argument("--record", metavar="FILE", help="record one build, compare nothing")
    parser.add_argument("--only", metavar="PATTERN", action="append", default=[],
                        help="cases with this pattern or part in their name; may be repeated")
    parser.add_argument("--keep", metavar="DIR", help="keep the runs here")
    parser.add_argument("--json", action="store_true", help="the results as one JSON object")
    parser.add_argument("--list", action="store_true", help="name the cases and their ranks")
    options = parser.parse_args(words)
    wanted = 0 if options.list else 1 if options.record else 2
    if len(options.sides) != wanted:
        parser.error(f"{wanted} of OLD and NEW are needed here, {len(options.sides)} were given")
    return options


def chosen(patterns):
    def fits(name):
        return any(fnmatch.fnmatchcase(name, p) or p in name for p in patterns)
    found = [case for case in CASES if not patterns or fits(case.name)]
    if not found:
        raise Usage(f"no case is named like {' or '.join(patterns)}; --list names them")
    return found


class Recorded:
    """A side that was run before."""

    def __init__(self, path):
        try:
            whole = json.loads(path.read_text())
            if whole["format"] != FORMAT or whole["version"] != 1:
                raise ValueError
            self.cases, commit = whole["cases"], whole["commit"]
        except (OSError, ValueError, KeyError, TypeError):
            raise Usage(f"{path} is no file that --record wrote") from None
        self.label = f"{path} (recorded of commit {commit})"

    def run(self, case):
        return self.cases.get(case.name)


class Built:
    """A side that is run."""

    def __init__(self, programs, root, keep, begun_by=None):
        self.programs, self.root, self.keep = programs.resolve(), root, keep
        self.begun_by = begun_by
        root.mkdir(parents=True)
        try:
            self.commit = version_of(self.programs, root)
        except (Failed, OSError) as error:
            raise Usage(f"{programs / 'longhaul'} --version: {error}") from None
        self.label = f"{programs} (commit {self.commit})"

    def run(self, case):
        record = run_case(case, self.programs, self.root, self.begun_by)
        if not self.keep:
            shutil.rmtree(self.root / case.name, ignore_errors=True)
        return record


def programs_of(text):
    """The directory of programs or the recorded file; commits are built."""
    path = pathlib.Path(text)
    if path.is_file():
        return path
    if path.is_dir():
        if not os.access(path / "longhaul", os.X_OK):
            raise Usage(f"{path} holds no program longhaul")
        return path
    return builds.build(text, lambda line: print(f"same_numbers: {line}", file=sys.stderr,
                                                 flush=True))[0]


def open_sides(options, root):
    names = ["recorded"] if options.record else ["old", "new"]
    paths = [programs_of(text) for text in options.sides]
    if options.record and paths[0].is_file():
        raise Usage(f"{paths[0]} is recorded already")
    # A file has no programs: then a case that is handed over is begun by the side itself.
    begun_by = paths[0].resolve() if paths[0].is_dir() else None
    return [Recorded(path) if path.is_file()
            else Built(path, root / name, bool(options.keep), begun_by)
            for name, path in zip(names, paths)]


def row(case, width, verdict, records, words):
    seconds = "".join(f"{record['seconds']:8.1f}" if record else f"{'-':>8}"
                      for record in records)
    return f"{case.name:{width}}  {case.ranks:5}{seconds}  {verdict:10}  {words}".rstrip()


def head(width, names):
    seconds = "".join(f"{name:>8}" for name in names)
    return f"{'case':{width}}  ranks{seconds}  verdict"


def record_side(side, cases, path, out):
    """Runs and writes down; the exit code."""
    width = max(len(case.name) for case in cases)
    print(head(width, ["s"]), file=out)
    records = {}
    for case in cases:
        record = records[case.name] = side.run(case)
        failed = record.get("failed", "")
        print(row(case, width, "FAILED" if failed else "recorded", [record], failed), file=out,
              flush=True)
    whole = {"format": FORMAT, "version": 1, "commit": side.commit, "cases": records}
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(whole, indent=1) + "\n")
    unfinished.replace(path)
    return int(any("failed" in record for record in records.values()))


def compare_sides(sides, cases, out):
    """Prints a line a case; name -> result."""
    width = max(len(case.name) for case in cases)
    for name, side in zip(("old", "new"), sides):
        print(f"{name}: {side.label}", file=out)
    print(head(width, ["old s", "new s"]), file=out, flush=True)
    results = {}
    for case in cases:
        records = [side.run(case) for side in sides]
        result = compare(*records)
        print(row(case, width, VERDICTS[result["verdict"]], records, words_of(result)), file=out,
              flush=True)
        results[case.name] = {"ranks": case.ranks, **result}
    counts = collections.Counter(result["verdict"] for result in results.values())
    told = ", ".join(f"{counts[v]} {VERDICTS[v]}" for v in VERDICTS if counts[v])
    print(f"{len(cases)} cases: {told}", file=out, flush=True)
    return results


def work(options):
    cases = chosen(options.only)
    if options.list:
        for case in cases:
            print(f"{case.name:36} {case.ranks} ranks")
        return 0
    if options.keep and pathlib.Path(options.keep).is_dir() and os.listdir(options.keep):
        raise Usage(f"{options.keep} is not empty")
    out = sys.stderr if options.json else sys.stdout
    with tempfile.TemporaryDirectory(prefix="same_numbers_") as scratch:
        sides = open_sides(options, pathlib.Path(options.keep or scratch).resolve())
        runs = any(isinstance(side, Built) for side in sides)
        if runs and max(case.ranks for case in cases) > 1 and not shutil.which("mpirun"):
            raise Usage("no mpirun found, which cases of several ranks need")
        if options.record:
            return record_side(sides[0], cases, pathlib.Path(options.record), out)
        results = compare_sides(sides, cases, out)
    if options.json:
        print(json.dumps({"old": sides[0].label, "new": sides[1].label, "cases": results},
                         indent=1))
    return int(any(result["verdict"] != "same" for result in results.values()))


def ended(number, _):
    sys.exit(128 + number)


def main():
    # Ranks have a session of their own: whoever ends this one ends them by it.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    options = parse(sys.argv[1:])
    try:
        return work(options)
    except (Usage, builds.CannotBuild, OSError) as error:
        print(f"same_numbers: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
