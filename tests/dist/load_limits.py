"""Loading and exporting under a limit on the memory of each process (RLIMIT_DATA)."""

import json
import resource

MB = 1_000_000
LAYER = 41_951_232  # bytes of weights of a layer of longhaul_load_tool


def limited(limit):
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def save(run, path, layers, ranks=2):
    run("longhaul_load_tool", "save", path, "zero", layers, "weights", ranks=ranks)


def load(run, path, layout, layers, ranks, limit, check=True):
    """Loads a model and checks its values. Returns the tool's report, or the completed process
    where it may fail."""
    done = run("longhaul_load_tool", "load", path, layout, layers, "weights", ranks=ranks,
               preexec_fn=limited(limit), check=check)
    return json.loads(done.stdout.splitlines()[-1]) if check else done


def export(run, path, out, limit, *words, check=True):
    return run("longhaul", "export", path / "step_00000001", "--out", out, *words,
               preexec_fn=limited(limit), check=check)
