"""Random tiny models, and layouts that fit them."""

import math
import random


class Draws:
    """Random numbers from a seed, which are the same in every version of Python."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def chance(self, share):
        return self.random() < share

    def between(self, low, high):
        return low + int(self.random() * (high - low + 1))

    def pick(self, items):
        return items[int(self.random() * len(items))]


RANKS = [1] * 3 + [2] * 6 + [3] * 2 + [4] * 6 + [5, 6, 6, 7, 8, 8]
MOST_LAYERS = 12


def divisors(number):
    return [n for n in range(1, number + 1) if number % n == 0]


def draw_axes(draws, ranks):
    axes, left = {"tp": 1, "pp": 1, "cp": 1}, ranks
    names = list(axes)
    for _ in axes:
        name = names.pop(draws.between(0, len(names) - 1))
        axes[name] = draws.pick(divisors(left)) if draws.chance(0.7) else 1
        left //= axes[name]
    return {**axes, "dp": left}


def draw_model(draws, axes, stages):
    tp = axes["tp"]
    while True:
        keys = draws.between(1, 4)
        heads = keys * draws.between(1, 4)
        if heads >= tp:
            break
    head_dim = 2 * draws.between(1, 8)
    model = {"layers": draws.between(stages, MOST_LAYERS), "heads": heads, "keys": keys,
             "head_dim": head_dim, "hidden": heads * head_dim,
             "inner": draws.between(tp, 40), "vocab": draws.between(max(2, tp), 120)}
    if draws.chance(0.3):
        model["hidden"] = draws.between(1, 64)
    elif draws.chance(0.5):
        del model["head_dim"]
    if keys == heads and draws.chance(0.5):
        del model["keys"]
    return {**model, "tied": draws.chance(0.4)}


def draw_partition(draws, layers, stages):
    counts = [1] * stages
    for _ in range(layers - stages):
        counts[draws.between(0, stages - 1)] += 1
    return counts


def draw_pipeline(draws, axes):
    """Draws the settings of the pipeline. Returns them, and the stages of each rank."""
    if axes["pp"] == 1:
        return ({"pipeline": draws.pick(["gpipe", "1f1b", "zb-h1"])} if draws.chance(0.15)
                else {}), 1
    kind = draws.pick(["1f1b", "gpipe", "interleaved", "interleaved", "zb-h1"])
    most = MOST_LAYERS // axes["pp"]
    if kind == "interleaved" and most < 2:
        kind = "zb-h1"
    if kind == "interleaved":
        chunks = draws.between(2, min(3, most))
        return {"pipeline": kind, "virtual_stages": chunks}, chunks
    return ({} if kind == "1f1b" and draws.chance(0.5) else {"pipeline": kind}), 1


def fitting_blocks(axes):
    """The numbers of ranks on a machine with which every data group has as many ranks on each of
    its machines, side by side."""
    ranks, stage = math.prod(axes.values()), axes["dp"] * axes["cp"] * axes["tp"]
    return [n for n in divisors(ranks)
            if n % axes["tp"] == 0 and (stage % n == 0 or n % stage == 0)]


def draw_sharding(draws, axes, case):
    group = axes["dp"] * axes["cp"]
    settings = {"zero": draws.between(0, 3)} if draws.chance(0.8) else {}
    if draws.chance(0.6):
        kind = draws.pick(["world", "node", "number", "number"])
        settings["shard_group"] = draws.pick(divisors(group)) if kind == "number" else kind
        if settings.get("zero") == 0 and draws.chance(0.5):
            settings["shard_group"] = draws.between(1, 9)  # has no effect, whatever it is
    if settings.get("shard_group") == "node" and draws.chance(0.6):
        size = draws.pick(fitting_blocks(axes))
        case["machines"] = "".join("abcdefgh"[r // size] for r in range(case["ranks"]))
    return settings


def draw_lengths(draws, axes, parallel, case):
    """Draws seq_len, the batch, and the model's positions."""
    cp, tp = axes["cp"], axes["tp"]
    unit = 2 * cp if cp > 1 else 1
    if tp > 1 and parallel.get("sequence", True):
        unit = math.lcm(unit, cp * tp)
    seq_len = unit * draws.between(-(-2 // unit), max(2, 40 // unit))
    micro = draws.between(1, 3)
    accumulation = draws.between(1, 4)
    if parallel.get("pipeline") == "interleaved":
        accumulation = axes["pp"] * draws.between(1, 2)
    case["model"]["positions"] = seq_len + draws.pick([0, 0, 1, 24])
    settings = {"data.seq_len": seq_len, "batch.global_size": axes["dp"] * micro * accumulation}
    if micro > 1 or draws.chance(0.5):
        settings["batch.micro_size"] = micro
    return settings


def draw_memory(draws):
    settings = {}
    if draws.chance(0.4):
        settings["memory.recompute"] = draws.pick(["none", "selective", "full", "full"])
    if draws.chance(0.2):
        settings["memory.recompute_layers"] = draws.between(0, MOST_LAYERS + 2)
    if settings.get("memory.recompute") == "full" and draws.chance(0.3):
        settings["memory.offload_activations"] = True
    return settings


def draw_precision(draws):
    settings = {"precision.compute": draws.pick(["fp32", "bf16"])} if draws.chance(0.7) else {}
    for key in ("moments", "gradients", "reduce"):
        if draws.chance(0.15):
            settings[f"precision.{key}"] = draws.pick(["fp32", "bf16"])
    return settings


def draw_case(draws):
    """Draws a case that fits; returns it, and the ranks of its axes."""
    ranks = draws.pick(RANKS)
    axes = draw_axes(draws, ranks)
    case = {"ranks": ranks}
    parallel = {axis: axes[axis] for axis in ("tp", "pp", "cp")
                if axes[axis] > 1 or draws.chance(0.2)}
    if draws.chance(0.5):
        parallel["sequence"] = draws.chance(0.5)
    pipeline, chunks = draw_pipeline(draws, axes)
    parallel.update(pipeline)
    stages = axes["pp"] * chunks
    case["model"] = draw_model(draws, axes, stages)
    if draws.chance(0.35 if stages > 1 else 0.08):
        parallel["partition"] = draw_partition(draws, case["model"]["layers"], stages)
    if draws.chance(0.7 if axes["cp"] > 1 else 0.1):
        parallel["context"] = draws.pick(["ring", "gather"])
    parallel.update(draw_sharding(draws, axes, case))
    if draws.chance(0.06):
        case["override"] = case["model"]["layers"]
        case["model"]["layers"] = draws.between(1, MOST_LAYERS)
    lengths = draw_lengths(draws, axes, parallel, case)
    case["settings"] = {**lengths, **{f"parallel.{k}": v for k, v in parallel.items()},
                        **draw_memory(draws), **draw_precision(draws)}
    return case, axes
