"""Random cases against references until the time is over.

    .venv/bin/python tests/soak/differential.py --minutes 60 --seed 7 --kinds models,layouts
    .venv/bin/python tests/soak/differential.py --case layouts:7-12

The second form repeats one case. Each kind is a module random_KIND.py beside this file with
`draw(rng)`, a legal case as a dictionary, and `check(case, path, run)`, which raises where
the program and its reference differ. A case is a process with a session of its own: at its
limit, and at its end, everything that it started is killed.
"""

import argparse
import collections
import importlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parent, *(HERE.parent / n for n in ("parity", "dist", "resume"))):
    sys.path.insert(0, str(folder))
os.environ.setdefault("LONGHAUL_BIN_DIR", str(HERE.parents[1] / "build" / "bin"))
# There are more ranks than cores, so a rank that waits leaves its core to one that works.
for name, value in {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
                    "OMPI_MCA_mpi_yield_when_idle": "1"}.items():
    os.environ.setdefault(name, value)

from programs import run_program  # noqa: E402

KINDS = ["models", "families", "layouts", "interruptions", "tokenizers", "imports", "directories", "groups",
         "spellings"]
WRONG_SETTING = 78


class Refused(Exception):
    """The program refused a case that the generator takes for legal."""


def run(program, *arguments, check=True, **options):
    """Runs a program as run_program does. A refusal raises Refused instead of a failure."""
    result = run_program(program, *arguments, check=False, **options)
    if check and result.returncode == WRONG_SETTING:
        lines = [line for line in result.stderr.splitlines() if "error:" in line]
        raise Refused((lines or [result.stderr])[0])
    if check and result.returncode != 0:
        raise AssertionError(f"{program} {' '.join(map(str, arguments))} ended with "
                             f"{result.returncode}\n{result.stdout}\n{result.stderr}")
    return result


def kill_session(session):
    """Kills all processes of a session, also those that begin during the call."""
    for _ in range(100):
        found = False
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, of = path.read_text().rpartition(")")[2].split()[:4]
                if int(of) == session and state not in "ZX":
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    found = True
            except (OSError, ValueError):
                continue  # it ended meanwhile
        if not found:
            return
        time.sleep(0.05)


def attempt(module, kind, seed, path):
    """Draws a case and checks it, in the child; writes case.json. Returns (outcome, message)."""
    case = module.draw(random.Random(f"{kind} {seed}"))
    (path / "case.json").write_text(json.dumps(case, indent=1, default=str))
    try:
        module.check(case, path, run)
        return "passed", ""
    except Refused as refusal:
        return "refused", str(refusal)
    except BaseException:
        return "failed", traceback.format_exc()


def run_case(module, kind, seed, path, limit):
    """Runs a case in a child process; returns (outcome, message). The directory of a case that
    passed is removed."""
    path.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        output = os.open(path / "output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        result = "failed", traceback.format_exc()
        try:
            result = attempt(module, kind, seed, path)
        finally:
            (path / "outcome.json").write_text(json.dumps(result))
            os._exit(0)
    end = time.monotonic() + limit
    ended = False
    try:
        while not ended and time.monotonic() < end:
            ended = os.waitpid(child, os.WNOHANG)[0] == child
            time.sleep(0.02)
    finally:
        kill_session(child)
    if not ended:
        os.waitpid(child, 0)
        return "failed", f"not done within {limit} s"
    if not (path / "outcome.json").exists():
        return "failed", "the case's process died"
    outcome, message = json.loads((path / "outcome.json").read_text())
    if outcome == "passed":
        shutil.rmtree(path)
    return outcome, message


class Soak:
    def __init__(self, kinds, work, limit):
        self.modules = {kind: importlib.import_module("random_" + kind) for kind in kinds}
        self.work, self.limit = work, limit
        self.counts = {kind: collections.Counter() for kind in kinds}
        self.seconds = dict.fromkeys(kinds, 0.0)
        self.refusals = []

    def one(self, kind, seed):
        begin = time.monotonic()
        path = self.work / f"{kind}_{seed}"
        outcome, message = run_case(self.modules[kind], kind, seed, path, self.limit)
        seconds = time.monotonic() - begin
        self.seconds[kind] += seconds
        self.counts[kind][outcome] += 1
        print(f"{kind}:{seed} {outcome} {seconds:.1f} s", flush=True)
        if outcome == "failed":
            print(f"{message}\nkept in {path}; again: .venv/bin/python "
                  f"tests/soak/differential.py --case {kind}:{seed}", flush=True)
        if outcome == "refused":
            self.refusals.append(f"{kind}:{seed} {message}")

    def until(self, end, cases, seed):
        """Runs cases until `end`: the kind that had the least time comes next. Ctrl-C and SIGTERM
        end it early."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            self.draw_until(end, cases, seed)
        except KeyboardInterrupt:
            print("stopped", flush=True)

    def draw_until(self, end, cases, seed):
        while time.monotonic() < end:
            left = [k for k in self.counts if cases is None or self.counts[k].total() < cases]
            if not left:
                return
            kind = min(left, key=self.seconds.get)
            self.one(kind, f"{seed}-{self.counts[kind].total() + 1}")

    def report(self):
        print(f"\n{'kind':<14} {'cases':>6} {'passed':>6} {'failed':>6} {'refused':>7}")
        total = collections.Counter()
        for kind, count in self.counts.items():
            print(f"{kind:<14} {count.total():>6} {count['passed']:>6} {count['failed']:>6} "
                  f"{count['refused']:>7}")
            total += count
        for line in self.refusals:
            print(f"refused: {line}")
        refused = [k for k, count in self.counts.items() if count.total() and not
                   count["passed"] + count["failed"]]
        if refused:
            print(f"every case was refused, so nothing was compared: {', '.join(refused)}; the "
                  "program or the generator is wrong")
        print(f"{total['passed']} passed, {total['failed']} failed")
        return 1 if total["failed"] or refused or not total["passed"] else 0


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float,
                        default=float(os.environ.get("LONGHAUL_SOAK_MINUTES", "30")))
    parser.add_argument("--cases", type=int, help="at most so many of each kind")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--case", help="KIND:SEED, this one only")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a case")
    parser.add_argument("--work", type=pathlib.Path, help="default: a new folder in /tmp")
    options = parser.parse_args(words)
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="soak_"))
    kind, _, seed = (options.case or "").partition(":")
    kinds = [kind] if kind else options.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        parser.error(f"the kinds are {', '.join(KINDS)}")
    soak = Soak(kinds, work, options.limit)
    if kind:
        soak.one(kind, seed)
    else:
        print(f"seed {options.seed}, {options.minutes} minutes, in {work}", flush=True)
        soak.until(time.monotonic() + 60 * options.minutes, options.cases, options.seed)
    return soak.report()


if __name__ == "__main__":
    sys.exit(main())
