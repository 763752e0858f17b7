"""The form that every refusal has, and checks that a refusal leaves nothing behind."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import steps_of  # noqa: E402

WRONG = 78      # never retried
TEMPORARY = 75  # the same command can succeed later


def contents(directory):
    return {str(p.relative_to(directory)): p.read_bytes() if p.is_file() else None
            for p in sorted(directory.rglob("*"))}


def refused(result, *words, code=WRONG):
    """The program ended with this code and one message that holds all the words."""
    error = result.stderr
    assert result.returncode == code, (result.returncode, result.stdout, error)
    assert re.search(r"^longhaul: error: (rank \d+ of \d+: )?\[", error, re.M), error
    assert "please report" not in error, error  # a fault of the program
    for word in words:
        assert str(word) in error, (word, error)


def refused_without_a_trace(run, directory, arguments, *words, code=WRONG):
    """Expects a refusal as refused() does, and that the directory holds afterwards what it held
    before."""
    before = contents(directory)
    refused(run("longhaul", *arguments, check=False, cwd=directory), *words, code=code)
    assert contents(directory) == before


def training_refused(run, directory, sets, *words, code=WRONG, ranks=1):
    """Expects a refusal as refused() does, and that no step was done and no checkpoint begun."""
    sets = [word for key in sets for word in ("--set", key)]
    refused(run("longhaul", "train", "run.toml", *sets, check=False, cwd=directory,
                ranks=ranks), *words, code=code)
    assert not (directory / "runs/mine/metrics.jsonl").exists() or \
        not steps_of(directory / "runs/mine")
    assert list(directory.glob("runs/mine/checkpoints/step_*")) == []


def shards(directory):
    return sorted(directory.glob("model-*.safetensors"))
