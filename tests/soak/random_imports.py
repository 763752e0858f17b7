"""Random models, cut by random shardings of other programs, come out bit for bit."""

import nxd_layouts as nxd
import torch
from import_helpers import assert_same, save_dcp, stored_state, tensors_of

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
STEP = 40


def divisors(number):
    return [n for n in range(1, number + 1) if number % n == 0]


def draw_nxd(rng):
    """Draws the ranks, the copies of key heads, and how the files are written."""
    tp, kv, group = rng.choice([1, 2, 3, 4, 8]), rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 4])
    # There are enough copies of the key heads for the ranks, and no more than a group has queries.
    copies = [m for m in divisors(group) if kv * m % tp == 0]
    if not copies:
        return draw_nxd(rng)
    multiplier = rng.choice(copies)
    qkv = rng.choice(["linear", "fused", "separate"])
    if multiplier == 1 and group == 1:
        qkv = rng.choice([qkv, "coalesced"])
    layers = rng.randint(1, 6)
    return {"form": "nxd", "heads": kv * group, "kv": kv, "layers": layers, "tp": tp,
            "pp": rng.choice([n for n in (1, 2, 3) if n <= layers]), "multiplier": multiplier,
            "order": rng.choice(["tiled", "trn2", "repeated"]), "qkv": qkv, "gate_up": rng.random() < 0.7,
            "files": rng.choice(["v1", "v2", "v3"]), "xser": rng.random() < 0.5,
            "wrap": rng.choice([None, "model"]), "local": rng.random() < 0.3,
            "moments": rng.random() < 0.4, "masters": rng.random() < 0.5,
            "groups": rng.choice([1, 2]), "dp": rng.randint(1, 4)}


def draw_plain(rng):
    kv = rng.choice([1, 2, 3])
    return {"form": rng.choice(["state", "dcp"]), "kv": kv, "heads": kv * rng.choice([1, 2, 4]),
            "layers": rng.randint(1, 5), "tp": 1, "nested": rng.choice([None, "model", "state_dict"]),
            "zip": rng.random() < 0.5, "prefix": rng.choice(["", "model.", "app.model."])}


def draw(rng):
    case = draw_nxd(rng) if rng.random() < 0.7 else draw_plain(rng)
    width = 2 * rng.randint(1, 8)
    return {**case, "hidden": case["heads"] * width, "inner": case["tp"] * rng.randint(1, 30),
            "vocab": case["tp"] * rng.randint(10, 40), "tied": rng.random() < 0.4,
            "dtype": rng.choice(sorted(DTYPES)), "out": rng.choice([None, "fp32"]),
            "shard_size": rng.choice(["5GB", "20KB"]), "seed": rng.randrange(2 ** 31)}


def shards(case, config, state):
    return nxd.shard(state, config, case["tp"], case["pp"], case["multiplier"], case["order"],
                     case["qkv"], case["gate_up"], case["local"])


def write_nxd(case, config, state, path):
    """Writes a step, with the optimizer's shards where the case has them. Returns the moments."""
    cut = shards(case, config, state)
    nxd.write_step(path, cut, step=STEP, layout=case["files"], xser=case["xser"],
                   wrap=case["wrap"])
    if not case["moments"]:
        return None
    whole = {kind: {n: torch.rand(t.shape) for n, t in state.items()}
             for kind in ("exp_avg", "exp_avg_sq")}
    whole["weight"] = {n: t.float() for n, t in state.items()}
    if case["masters"]:
        whole["weight"] = {n: t + 1e-4 * torch.rand(t.shape) for n, t in whole["weight"].items()}
    masters = shards(case, config, whole["weight"]) if case["masters"] else None
    nxd.write_zero(path / "optim", cut, {k: shards(case, config, whole[k])
                                         for k in ("exp_avg", "exp_avg_sq")},
                   case["dp"], STEP, case["groups"], masters, case["xser"])
    return whole


def write_plain(case, state, path):
    if case["form"] == "state":
        torch.save({case["nested"]: state, "step": 7} if case["nested"] else state, path,
                   _use_new_zipfile_serialization=case["zip"])
        return
    value = state
    for key in reversed(case["prefix"].split(".")[:-1]):
        value = {key: value}
    save_dcp(value, path)


def check(case, path, run):
    config, state = nxd.make_state(
        path / "hf", DTYPES[case["dtype"]], case["layers"], case["heads"], case["kv"],
        case["tied"], case["vocab"], case["hidden"], case["inner"], case["seed"])
    source, whole = path / "source.pt", None
    if case["form"] == "nxd":
        source = path / f"step_{STEP}"
        whole = write_nxd(case, config, state, source)
    else:
        write_plain(case, state, source)
    call = ["longhaul", "import", source, "--config", path / "hf"]
    order = nxd.hardware(case.get("order"), case.get("multiplier", 1))
    dtype = ["--dtype", case["out"]] if case["out"] else []
    run(*call, *order, *dtype, "--out", path / "out", "--shard-size", case["shard_size"])
    assert_same(tensors_of(path / "out"),
                {n: t.float() if case["out"] else t for n, t in state.items()})
    if whole is None:
        return
    run(*call, *order, "--format", "checkpoint", "--out", path / "checkpoint")
    found = stored_state(path / "checkpoint" / f"step_{STEP:08}")
    for kind, expected in whole.items():
        assert_same(found[kind], expected)
