"""Layouts of published models on more ranks than a test can start."""

import math

from draws import Draws, draw_memory, draw_partition, draw_precision
from mistakes import MISTAKES

SHAPES = {
    "Llama 3 8B": {"layers": 32, "heads": 32, "keys": 8, "hidden": 4096, "inner": 14336,
                   "vocab": 128256, "positions": 8192, "tied": False},
    "Llama 3 70B": {"layers": 80, "heads": 64, "keys": 8, "hidden": 8192, "inner": 28672,
                    "vocab": 128256, "positions": 8192, "tied": False},
    "Llama 3.1 405B": {"layers": 126, "heads": 128, "keys": 8, "hidden": 16384, "inner": 53248,
                       "vocab": 128256, "positions": 131072, "tied": False},
}
FEWEST, MOST, VAST = 9, 4096, 100_000
# Those of MISTAKES that depend on the number of ranks or on the size of the model.
LARGE_MISTAKES = [
    "seq_len against cp", "seq_len against tp", "ranks against degrees", "global_size against dp",
    "seq_len against positions", "shard_group against dp x cp", "layers against stages",
    "partition of another length", "partition of another sum", "heads against tp",
    "micro batches against interleaved"]


def large_axes(draws, most):
    while True:
        axes = {"tp": draws.pick([1, 2, 4, 8, 8, 8, 16, 3]),
                "pp": draws.pick([1, 1, 2, 4, 5, 8, 10, 14, 16, 20, 32, 63]),
                "cp": draws.pick([1, 1, 1, 2, 4, 8, 16]),
                "dp": draws.pick([1, 2, 3, 4, 8, 12, 16, 25, 32, 50, 64, 96, 128, 256, 1000])}
        ranks = math.prod(axes.values())
        if (VAST // 8 if most == VAST else FEWEST) <= ranks <= most:
            return axes, ranks


def large_case(draws, most):
    axes, ranks = large_axes(draws, most)
    name = draws.pick(list(SHAPES))
    model = dict(SHAPES[name])
    parallel = {axis: axes[axis] for axis in ("tp", "pp", "cp") if axes[axis] > 1}
    chunks = 1
    if axes["pp"] > 1:
        parallel["pipeline"] = draws.pick(["1f1b", "gpipe", "zb-h1", "interleaved"])
    if parallel.get("pipeline") == "interleaved":
        chunks = parallel["virtual_stages"] = draws.between(2, 5)
    stages = axes["pp"] * chunks
    if 1 < stages <= model["layers"] and draws.chance(0.3):
        parallel["partition"] = draw_partition(draws, model["layers"], stages)
    group = axes["dp"] * axes["cp"]
    parallel["zero"] = draws.between(0, 3)
    if draws.chance(0.6):
        fitting = [n for n in (1, 2, 4, 8, 16, 32, 64, 3, 5, 25) if group % n == 0]
        parallel["shard_group"] = draws.pick(["world", *fitting, *fitting])
    micro = draws.between(1, 4)
    accumulation = axes["pp"] * draws.between(1, 8)
    settings = {"data.seq_len": draws.pick([2048, 4096, 8192] if model["positions"] == 8192
                                           else [8192, 32768, 131072]),
                "batch.global_size": axes["dp"] * micro * accumulation,
                "batch.micro_size": micro}
    if axes["tp"] == 3:
        settings["data.seq_len"] = 6144
    settings.update({f"parallel.{k}": v for k, v in parallel.items()})
    settings.update({**draw_memory(draws), **draw_precision(draws)})
    return {"ranks": ranks, "model": model, "settings": settings, "shape": name}, axes


def spelt_out():
    """Layouts that are written out here; `longhaul config --ranks` is known to have accepted
    them."""
    common = {"data.seq_len": 8192, "batch.micro_size": 1}
    shape = {"shape": "Llama 3 70B", "model": SHAPES["Llama 3 70B"]}
    return [
        {"ranks": 800, **shape, "settings": {
            **common, "batch.global_size": 800, "parallel.tp": 8, "parallel.pp": 100}},
        {"ranks": 400, **shape, "settings": {
            **common, "batch.global_size": 400, "parallel.tp": 8, "parallel.shard_group": 3}},
        {"ranks": 64, **shape, "settings": {
            **common, "batch.global_size": 64, "parallel.tp": 8, "parallel.pp": 8,
            "parallel.partition": [40, 40]}},
    ]


def draw_large(seed, count):
    cases = spelt_out()
    number = 0
    while len(cases) < count:
        number += 1
        draws = Draws(f"{seed} large {number}")
        case, axes = large_case(draws, VAST if number % 15 < 2 else MOST)
        if number % 2:
            name = LARGE_MISTAKES[number // 2 % len(LARGE_MISTAKES)]
            if MISTAKES[name](draws, case, axes) is False:
                continue
        cases.append(case)
    return cases
