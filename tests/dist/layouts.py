"""Small runs in any layout, and what two of them have to have in common."""

import json
import pathlib
import random
import re
import sys
from dataclasses import dataclass, replace

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, state, steps_of, tensors  # noqa: E402, F401

# `make soak` compares longer runs.
STEPS, FEW = (20, 10) if "--soak" in sys.argv else (10, 5)
BETA1 = 0.9
GLOBAL_NORM_SHARE = 1e-6  # of the global norm: what tensors of tiny norm are measured by

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 301,
    "hidden_size": 96, "intermediate_size": 150, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "initializer_range": 0.05, "tie_word_embeddings": False,
    # The padding token ends each document here: its look-ups have no gradient.
    "pad_token_id": 1, "torch_dtype": "bfloat16",
}

RUN = """
[run]
dir = "{dir}"
steps = {steps}
device = "cpu"
threads = 1
[model]
config = "{model}"
[data]
seq_len = 32
train = [{{ path = "{store}" }}]
[batch]
global_size = 8
micro_size = 2
[optimizer]
lr = 3e-3
betas = [{beta1}, 0.95]
[schedule]
kind = "cosine"
warmup_steps = 2
[checkpoint]
every = 0
keep = 0
"""

FP32 = ['precision.compute="fp32"']


def parallel(ranks, micro_size=2, **keys):
    """A number of ranks and the settings that lay a run out on them."""
    sets = [f"batch.micro_size={micro_size}"]
    return ranks, sets + [f"parallel.{key}={json.dumps(value)}" for key, value in keys.items()]


# Every kind of layout, alone and with others. World is pp x dp x cp x tp.
LAYOUTS = {
    "dp2": parallel(2, zero=0),
    "dp4": parallel(4, 1, zero=0),
    "zero1": parallel(2, zero=1),
    "zero2": parallel(2, zero=2),
    "zero3": parallel(2, zero=3),
    "shard_group_2_of_4": parallel(4, 1, zero=3, shard_group=2),
    "tp2": parallel(2, 4, tp=2, sequence=False),
    "tp2_sequence": parallel(2, tp=2),
    "tp4": parallel(4, 4, tp=4, sequence=False),  # two ranks for each key head
    "tp4_sequence": parallel(4, 4, tp=4),
    "cp2_ring": parallel(2, cp=2, context="ring"),
    "cp2_gather": parallel(2, 4, cp=2, context="gather"),
    "cp4_ring": parallel(4, 4, cp=4, context="ring"),
    "cp4_gather": parallel(4, 4, cp=4, context="gather"),
    "pp2": parallel(2, pp=2),
    "pp2_gpipe": parallel(2, pp=2, pipeline="gpipe"),
    "pp2_zb": parallel(2, pp=2, pipeline="zb-h1"),
    "pp2_interleaved": parallel(2, pp=2, pipeline="interleaved", virtual_stages=2),
    "pp4": parallel(4, pp=4),
    "tp2_pp2": parallel(4, tp=2, pp=2),
    "tp2_cp2": parallel(4, 4, tp=2, cp=2),
    "pp2_dp2_zero1": parallel(4, pp=2, zero=1),
    "pp2_dp2_zero2": parallel(4, pp=2, zero=2),
    "pp2_dp2_zero3": parallel(4, pp=2, zero=3, partition=[3, 1]),  # three blocks, two held
    "pp2_dp2_zero3_interleaved": parallel(4, pp=2, zero=3, pipeline="interleaved", virtual_stages=2),
    "tp2_pp2_dp2": parallel(8, tp=2, pp=2),
    "tp2_zero3": parallel(4, tp=2, zero=3),
    "cp2_dp2_zero3": parallel(4, cp=2, zero=3),
}


# For each family its small model: Llama's with the changes that the table has, or a whole one.
TABLE = json.loads((pathlib.Path(__file__).resolve().parents[1] / "families.json").read_text())


def small_model(name):
    family = TABLE[name]
    settings = family["layouts"]
    base = MODEL if family["decoder"] else {"initializer_range": 0.05, "torch_dtype": "bfloat16"}
    base = {key: value for key, value in base.items() if key not in settings.get("without", ())}
    return {**base, "architectures": [family["architecture"]], "model_type": name,
            **settings["config"]}


MODELS = {name: small_model(name) for name, family in TABLE.items() if "layouts" in family}
# For each further decoder: its settings, the layout that `make test` tries, the numbers of tensors
# of the model and of a block, and a change of the mathematics that the certificate sees.
DECODERS = {name: (MODELS[name], *(TABLE[name]["layouts"][key] for key in ("layout", "tensors", "change")))
            for name in MODELS if "layout" in TABLE[name]["layouts"]}


def write_model(path, model_type="llama", **changes):
    path.mkdir(parents=True, exist_ok=True)
    settings = MODELS.get(model_type, {**MODEL, "model_type": model_type})
    (path / "config.json").write_text(json.dumps({**settings, **changes}))
    return path


def build_store(run, root):
    """Documents of 4 to 90 tokens from few words, so that a model learns at once."""
    words = random.Random(7)
    vocabulary = ["".join(words.choices("abcdefgh", k=words.randint(2, 6))) for _ in range(40)]
    with (root / "corpus.jsonl").open("w") as file:
        for _ in range(400):
            text = " ".join(words.choices(vocabulary, k=words.randint(1, 30)))
            file.write(json.dumps({"text": text}) + "\n")
    run("longhaul", "data", "train-tokenizer", root / "corpus.jsonl", "--out", root / "tokenizer",
        "--vocab-size", MODEL["vocab_size"])
    run("longhaul", "data", "build", root / "corpus.jsonl", "--tokenizer", root / "tokenizer",
        "--out", root / "store")
    return root / "store"


def write_run(path, store, name="run", **model_changes):
    text = RUN.format(dir=path / name, steps=STEPS, store=store, beta1=BETA1,
                      model=write_model(path / "model", **model_changes))
    (path / f"{name}.toml").write_text(text)
    return path / f"{name}.toml"


def train(run, path, *sets, ranks=1, **options):
    return run("longhaul", "train", path, *[w for s in sets for w in ("--set", s)], ranks=ranks,
               env={"OMP_NUM_THREADS": "1"}, **options)


def step_dir(run_dir, step):
    return run_dir / "checkpoints" / f"step_{step:08}"


def state_tensors(checkpoint, kind):
    """Every whole tensor of a checkpoint; each element was saved by one rank exactly."""
    values, copies = {}, {}
    for sidecar in sorted(checkpoint.glob("a*_rank_*.json")):
        data = sidecar.with_suffix(".safetensors").read_bytes()
        for box in json.loads(sidecar.read_text())["boxes"]:
            if box["kind"] != kind:
                continue
            name, shape = box["name"], box["shape"]
            values.setdefault(name, numpy.zeros(shape))
            copies.setdefault(name, numpy.zeros(shape, dtype=int))
            where = tuple(slice(o, o + e) for o, e in zip(box["offset"], box["extent"]))
            count = int(numpy.prod(box["extent"]))
            if box["dtype"] == "BF16":
                halves = numpy.frombuffer(data, "<u2", count, box["begin"]).astype("<u4")
                part = (halves << 16).view("<f4")
            else:
                assert box["dtype"] == "F32"
                part = numpy.frombuffer(data, "<f4", count, box["begin"])
            values[name][where] = part.reshape(box["extent"])
            copies[name][where] += 1
    assert values
    for name, count in copies.items():
        assert count.min() == count.max() == 1, f"{name} is not saved once"
    return values


@dataclass
class Result:
    """The figures of a run by which layouts are compared."""

    losses: list
    norms: list
    first_gradients: dict


def first_gradients(run_dir):
    """The gradients of the first step: after one update without clipping the first moment is a
    known share of the gradient."""
    moments = state_tensors(step_dir(run_dir, 1), "exp_avg")
    return {name: value / (1 - BETA1) for name, value in moments.items()}


def run_layout(run, path, store, layout, *sets, steps=STEPS, **model_changes):
    """Trains without clipping. A file SAVE that is there from the start has the first step saved: to
    save each step would take as long as to train it."""
    ranks, keys = layout
    config = write_run(path, store, **model_changes)
    (path / "run").mkdir()
    (path / "run/SAVE").touch()
    train(run, config, *keys, "optimizer.clip=0", f"run.steps={steps}", *sets, ranks=ranks)
    points = curve(path / "run")
    assert len(points) == steps
    return Result([p[0] for p in points], [p[1] for p in points], first_gradients(path / "run"))


def go_on_with(run, store, path, trained, before, after, **model_changes):
    """Trains four steps in fp32 in one layout and four more in another; returns the whole curve."""
    first = trained(LAYOUTS.get(before, (1, [])), *FP32, "run.steps=8", "run.stop_after=4",
                    **model_changes)
    ranks, keys = LAYOUTS.get(after, (1, []))
    source = json.dumps(str(step_dir(first, 4)))
    train(run, write_run(path, store, **model_changes), *keys, *FP32, "run.steps=8",
          f"checkpoint.resume={source}", ranks=ranks)
    assert min(steps_of(path / "run")) == 5
    return curve(first) + curve(path / "run")


def relative(ours, theirs):
    assert len(ours) == len(theirs)
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def joined(gradients):
    """The gradients with the biases of queries, keys and values joined where nothing is rotated. A
    bias of keys adds the same to all scores of a query, so its own gradient is rounding only."""
    found = {}
    for name, value in sorted(gradients.items()):
        whole = re.sub(r"((transformer|bert).*)[qkv]_proj.bias", r"\1c_attn.bias", name)
        found[whole] = numpy.concatenate([found[whole], value]) if whole in found else value
    return found


def gradient_distance(ours, theirs):
    """The largest ||a - b|| / (||b|| + a millionth of the global norm), and its tensor."""
    ours, theirs = joined(ours), joined(theirs)
    assert ours.keys() == theirs.keys()
    whole = sum(numpy.sum(b ** 2) for b in theirs.values()) ** 0.5
    return max((numpy.linalg.norm(ours[n] - b)
                / (numpy.linalg.norm(b) + GLOBAL_NORM_SHARE * whole), n)
               for n, b in theirs.items())


@dataclass
class Tolerance:
    losses: float
    norms: float
    gradients: float


IN_FP32 = Tolerance(1e-5, 1e-5, 1e-5)
# Norms have no bound: in a sharp step rounding alone moves them by a tenth.
IN_BF16 = Tolerance(2e-3, float("inf"), 3e-2)


def violations(ours, theirs, tolerance):
    """What differs by more than the tolerance: kind -> by how much. An empty result means equal
    runs."""
    steps = len(ours.losses)
    found = {
        "losses": (relative(ours.losses, theirs.losses[:steps]), tolerance.losses),
        "norms": (relative(ours.norms, theirs.norms[:steps]), tolerance.norms),
        "gradients": (gradient_distance(ours.first_gradients, theirs.first_gradients)[0],
                      tolerance.gradients),
    }
    return {kind: value for kind, (value, limit) in found.items() if not value <= limit}


# Larger first weights make bf16 noisier.
BF16_MODEL = {"initializer_range": 0.02}


def assert_bf16_is_one_rank(judged, layout):
    """Expects a layout to be close to one rank in bf16, and no further from fp32 than one rank
    is."""
    # The run ends with the eighteenth batch, since the nineteenth is so sharp that any rounding
    # moves its loss.
    run = dict(BF16_MODEL, steps=18)
    ours, one = judged(layout, **run), judged((1, []), **run)
    in_fp32 = judged((1, []), *FP32, **run)
    exact = in_fp32.first_gradients
    assert one.losses[0] - one.losses[-1] >= 0.5
    # A batch may be so sharp that rounding alone moves its loss by more: then one rank in bf16 differs
    # from fp32 as much. Which batch that is depends on the CPU.
    sharpest = 1.5 * relative(one.losses, in_fp32.losses)
    found = violations(ours, one, replace(IN_BF16, losses=max(IN_BF16.losses, sharpest)))
    assert not found, found
    assert relative(ours.losses, in_fp32.losses) < max(IN_BF16.losses, sharpest)
    rounding = gradient_distance(one.first_gradients, exact)[0]
    distance = gradient_distance(ours.first_gradients, exact)[0]
    assert 1e-3 < distance <= 1.5 * rounding, (distance, rounding)
