"""Random patterns of optimizer.groups, made from the names in Hugging Face's files, over random models
of every family and some layouts: what a pattern names stays bit for bit, everything else moves."""

import fnmatch
import json
import random
import re

import torch
from random_families import draw as draw_model
from random_families import make
from safetensors.torch import load_file
from test_training import BATCH, config_text

LENGTH, STEPS = 16, 2
LAYOUTS = [(1, []), (1, []), (1, ["run.fused=false"]), (2, ["parallel.zero=1"]), (2, ["parallel.zero=3"])]
STILL = ["frozen = true", "lr_scale = 0.0"]


def draw(rng):
    model = draw_model(rng)
    return {**model, "patterns": rng.choice([1, 1, 2, 3]), "still": rng.choice(STILL),
            "layout": rng.choice(LAYOUTS), "nonsense": rng.random() < 0.1,
            "compute": rng.choice(["fp32", "fp32", "bf16"])}


def pattern_of(name, rng):
    """A way in which a person would name this tensor of the files."""
    parts = name.split(".")
    middle = ".".join(parts[max(0, len(parts) - 3):-1])
    return rng.choice([name, f"*{middle}*", f"*.{middle}.*", middle, re.sub(r"\.\d+\.", ".*.", name),
                       re.sub(r"\.\d\.", ".?.", name), name.split(".", 1)[-1]])


def matches(pattern, name):
    if "*" in pattern or "?" in pattern:
        return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
    return pattern in name


def names_of(path, run):
    """For each tensor of the files, the names of the parameters in it."""
    listed = json.loads(run("longhaul", "inspect", path, "--names", "--json").stdout)
    names = {}
    for one in listed:
        names.setdefault(one["file_name"], set()).add(one["name"])
    return names


def check(case, path, run):
    torch.set_num_threads(1)
    make(case, path)
    before = load_file(path / "model" / "model.safetensors")
    names = names_of(path / "model", run)
    assert set(names) == set(before), sorted(set(names) ^ set(before))
    rng = random.Random(case["seed"])
    patterns = [pattern_of(rng.choice(sorted(before)), rng) for _ in range(case["patterns"])]
    if case["nonsense"]:
        patterns.append("*no_such_tensor*")
    groups = ", ".join(f'{{ match = "{p}", {case["still"]} }}' for p in patterns)
    ranks, keys = case["layout"]
    sets = ["data.train=[{ synthetic = 64 }]", f"optimizer.groups=[{groups}]", "optimizer.lr=0.01",
            f'precision.compute="{case["compute"]}"', *keys]
    (path / "run.toml").write_text(config_text(path, BATCH // ranks, STEPS, LENGTH))
    words = [word for key in sets for word in ("--set", key)]
    meant = {n for n in before if any(matches(p, n) for p in patterns)}
    # A pattern may also mean a parameter by the program's own name, which several share a tensor.
    own = {n: {p for p in names[n] if any(matches(q, p) for q in patterns)} for n in before}
    all_still = all(n in meant or own[n] == names[n] for n in before)
    every = set(before).union(*names.values())
    idle = [p for p in patterns if not any(matches(p, name) for name in every)]
    result = run("longhaul", "train", path / "run.toml", *words, ranks=ranks, check=False)
    if idle or (all_still and "frozen" in case["still"]):
        assert result.returncode == 78, result.stdout + result.stderr
        assert (f'match = "{idle[0]}" matches none' if idle else "freezes all") in result.stderr
        return
    assert result.returncode == 0, result.stdout + result.stderr
    run("longhaul", "export", path / "run", "--out", path / "export", "--dtype", "fp32")
    after = load_file(path / "export" / "model.safetensors")
    assert set(after) == set(before)
    for name, tensor in before.items():
        same = torch.equal(after[name], tensor.float())
        if name in meant or own[name] == names[name]:
            assert same, f"{name} has moved, although {patterns} names it"
        elif not own[name]:
            assert not same, f"{name} has not moved, although none of {patterns} names it"
