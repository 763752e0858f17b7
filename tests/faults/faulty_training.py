"""Runs `longhaul train` on a disk that breaks (fault_files.cpp), and compares with a whole run."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, state, tensors, write_config  # noqa: E402

SETS = ["run.steps=6", "checkpoint.every=2", "checkpoint.keep=2", "run.threads=1"]
LAST = 6
TEMPORARY = 75


def arguments(config, *more):
    return ["longhaul", "train", config, *[w for s in (*SETS, *more) for w in ("--set", s)]]


def faults(binary, run_dir, rules="", rank=None, record=None):
    """Returns the environment that breaks the checkpoints of a run."""
    library = pathlib.Path(binary("liblonghaul_fault_files.so"))
    assert library.exists()
    found = {"LD_PRELOAD": str(library), "LONGHAUL_FAULT": rules,
             "LONGHAUL_FAULT_DIR": str(run_dir / "checkpoints")}
    if rank is not None:
        found["LONGHAUL_FAULT_RANK"] = str(rank)
    if record is not None:
        found["LONGHAUL_FAULT_RECORD"] = str(record)
    return found


def changes(record):
    """Returns how many changes of the disk were recorded."""
    data, at, count = record.read_bytes(), 0, 0
    while at < len(data):
        end = data.index(b"\n", at)
        at = end + 1 + int(data[at:end].split(b"\t")[3])
        count += 1
    return count


def saved_steps(output):
    return [int(step) for step in re.findall(r"^checkpoint step (\d+) saved", output, re.M)]


def resumed_at(output):
    found = re.search(r"^weights, moments and data position: .*step_(\d+) ", output, re.M)
    return int(found[1]) if found else 0


def last_checkpoint(run_dir):
    return run_dir / "checkpoints" / f"step_{LAST:08}"


class Whole:
    """An undisturbed run, and how many changes of the disk it makes."""

    def __init__(self, run, binary, directory, ranks, rank, *sets):
        self.ranks, self.rank, self.sets = ranks, rank, sets
        record = directory / "record"
        self.dir = directory / "whole"
        run(*arguments(write_config(directory, "whole"), *sets), ranks=ranks,
            env=faults(binary, self.dir, "nosync", rank, record))
        self.changes = changes(record)
        self.curve, self.state = curve(self.dir), state(last_checkpoint(self.dir))
        self.tensors = tensors(last_checkpoint(self.dir))

    def equals(self, run_dir):
        assert curve(run_dir) == self.curve
        assert state(last_checkpoint(run_dir)) == self.state
        assert tensors(last_checkpoint(run_dir)) == self.tensors


def break_and_go_on(run, binary, directory, whole, rules):
    """Runs under these rules, and then runs the same command on a good disk. The second run must
    end as the undisturbed run did, and must not start before the last checkpoint that was reported
    as committed."""
    config = write_config(directory, "run")
    run_dir = directory / "run"
    broken = run(*arguments(config, *whole.sets), ranks=whole.ranks, check=False,
                 env=faults(binary, run_dir, rules, whole.rank))
    reported = saved_steps(broken.stdout)
    again = run(*arguments(config, *whole.sets), ranks=whole.ranks)
    assert resumed_at(again.stdout) >= max(reported, default=0), again.stdout
    whole.equals(run_dir)
    run("longhaul", "verify", run_dir)
    kept = sorted(p.name for p in (run_dir / "checkpoints").glob("step_*"))
    assert kept[-1] == last_checkpoint(run_dir).name
    return broken, again


