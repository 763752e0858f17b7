"""Random models in random layouts against one rank, by the tolerances of docs/numerics.md."""

import functools
import json
import math

from layouts import (BF16_MODEL, IN_BF16, IN_FP32, MODEL, build_store, gradient_distance,
                     parallel, run_layout, violations)
from random_models import draw_sizes

RANKS = 8
SCHEDULES = ["1f1b", "gpipe", "interleaved", "zb-h1"]


def draw_axes(rng, ranks):
    """Ranks of each axis, at least two and at most `ranks` in all."""
    while True:
        axes = {"tp": rng.choice([1, 1, 2, 2, 3, 4, 6]), "pp": rng.choice([1, 1, 2, 3, 4]),
                "cp": rng.choice([1, 1, 2, 3, 4]), "dp": rng.choice([1, 1, 2, 2, 3, 4, 8])}
        if 2 <= math.prod(axes.values()) <= ranks:
            return axes


def draw_layout(rng, ranks=RANKS):
    """Axes, keys of [parallel] that are legal together, and micro batches of a replica."""
    axes = draw_axes(rng, ranks)
    keys = {"tp": axes["tp"], "pp": axes["pp"], "cp": axes["cp"], "zero": rng.randint(0, 3)}
    accumulation = rng.randint(1, 4)
    if keys["tp"] > 1:
        keys["sequence"] = rng.random() < 0.6
    if keys["cp"] > 1:
        keys["context"] = rng.choice(["ring", "gather"])
    if keys["pp"] > 1:
        keys["pipeline"] = rng.choice(SCHEDULES)
    if keys.get("pipeline") == "interleaved":
        keys["virtual_stages"] = rng.choice([2, 2, 3])
        accumulation = keys["pp"] * rng.randint(1, 2)
    group = axes["dp"] * axes["cp"]
    if keys["zero"]:
        keys["shard_group"] = rng.choice(
            ["world", "node", *(n for n in range(1, group + 1) if group % n == 0)])
    return {"axes": axes, "keys": keys, "accumulation": accumulation}


def draw_nodes(rng, layout):
    """The machines that the ranks pretend to be on: blocks of ranks in which every group has equal
    parts."""
    axes = layout["axes"]
    ranks, stage = math.prod(axes.values()), axes["dp"] * axes["cp"] * axes["tp"]
    if layout["keys"].get("shard_group") != "node":
        return 1
    return rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0
                       and ranks // n % axes["tp"] == 0
                       and (stage % (ranks // n) == 0 or ranks // n % stage == 0)])


def draw_memory(rng):
    kind = rng.choice(["none", "none", "selective", "full", "full"])
    sets = [f'memory.recompute="{kind}"']
    if kind == "full" and rng.random() < 0.5:
        sets.append(f"memory.recompute_layers={rng.randint(0, 4)}")
    if kind == "full" and rng.random() < 0.3:
        sets.append("memory.offload_activations=true")
    return sets


def draw_model(rng, layout):
    """A model that has something to split for each rank."""
    tp, keys = layout["axes"]["tp"], layout["keys"]
    while True:
        model = draw_sizes(rng)
        if model["num_attention_heads"] >= tp:
            break
    stages = keys["pp"] * keys.get("virtual_stages", 1)
    model["intermediate_size"] = max(model["intermediate_size"], tp)
    model["num_hidden_layers"] = stages + rng.randint(0, 3)
    model["vocab_size"] = rng.randint(MODEL["vocab_size"], 400)
    model["pad_token_id"] = rng.choice([None, MODEL["pad_token_id"], rng.randrange(60)])
    if rng.random() < 0.3 and stages > 1:
        keys["partition"] = draw_partition(rng, model["num_hidden_layers"], stages)
    return model


def draw_partition(rng, layers, stages):
    cuts = sorted(rng.sample(range(1, layers), stages - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, layers])]


def draw_lengths(rng, layout):
    """Draws a sequence length and a micro size that the layout can split, and the sequences of a
    step."""
    keys, micro = layout["keys"], rng.randint(1, 3)
    unit = 2 * keys["cp"]
    if keys.get("sequence"):
        unit = keys["cp"] * math.lcm(2, keys["tp"])
    return {"seq_len": unit * rng.randint(1, max(1, 40 // unit)), "micro": micro,
            "global": layout["axes"]["dp"] * micro * layout["accumulation"]}


def draw_numerics(rng):
    sets = [f'precision.compute="{rng.choice(["fp32", "fp32", "fp32", "bf16"])}"']
    sets += ["data.document_mask=true"] * (rng.random() < 0.4)
    sets += ["optimizer.z_loss=0.01"] * (rng.random() < 0.2)
    sets += ["run.fused=false"] * (rng.random() < 0.15)
    return sets


def draw(rng):
    layout = draw_layout(rng)
    model = draw_model(rng, layout)
    lengths = draw_lengths(rng, layout)
    return {"layout": layout, "model": model, **lengths, "memory": draw_memory(rng),
            "numerics": draw_numerics(rng), "steps": rng.randint(4, 8),
            "nodes": draw_nodes(rng, layout),
            "one_micro": rng.choice([n for n in range(1, 9) if lengths["global"] % n == 0])}


def common_sets(case):
    return [*case["numerics"], f"data.seq_len={case['seq_len']}",
            f"batch.global_size={case['global']}"]


def ranks_and_keys(case):
    layout = case["layout"]
    return parallel(math.prod(layout["axes"].values()), case["micro"], **layout["keys"])


def store_for(path, run):
    """Builds the token store of the distributed tests, which is the same for every case."""
    (path / "data").mkdir()
    return build_store(run, path / "data")


def check(case, path, run):
    store = store_for(path, run)
    ranks, keys = ranks_and_keys(case)
    bf16 = 'precision.compute="bf16"' in case["numerics"]
    model = {**case["model"], **(BF16_MODEL if bf16 else {})}
    results = {}
    for name, layout in (("one", parallel(1, case["one_micro"])),
                         ("ours", (ranks, [*keys, *case["memory"]]))):
        (path / name).mkdir()
        on_nodes = functools.partial(run, nodes=case["nodes"])
        results[name] = run_layout(on_nodes, path / name, store, layout, *common_sets(case),
                                   steps=case["steps"], **model)
    found = violations(results["ours"], results["one"], IN_BF16 if bf16 else IN_FP32)
    if bf16 and set(found) == {"gradients"}:  # a few tokens round more than a batch does
        (path / "exact").mkdir()
        sets = [s.replace('"bf16"', '"fp32"') for s in common_sets(case)]
        exact = run_layout(run, path / "exact", store, parallel(1, case["one_micro"]), *sets,
                           steps=case["steps"], **model).first_gradients
        rounding, distance = (gradient_distance(results[name].first_gradients, exact)[0]
                              for name in ("one", "ours"))
        assert distance <= 1.5 * rounding, (distance, rounding, json.dumps(case))
        return
    assert not found, (found, json.dumps(case))
