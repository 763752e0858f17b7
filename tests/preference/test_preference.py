"""Training on pairs: the losses of a peer, layouts, the kept reference, resumes and refusals."""

import json
import math
import pathlib
import shutil
import struct
import sys

import pytest
from pairs import (ADAM, BETA, CLIP, DECAY, FIGURES, GAMMA, LOSSES, MODEL, SMOOTHING, Peer, apart,
                   make_pairs, make_store)
from programs import split

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from refusals import training_refused  # noqa: E402
from runs import curve, final, state, steps_of, tensors  # noqa: E402

PAIRS = make_pairs(16)
STEPS = 20
RUN = """
[run]
dir = "{dir}"
steps = {steps}
device = "cpu"
threads = 1
[model]
config = "{root}/model"
[init]
weights = "{root}/model"
certificate = false
[data]
seq_len = 48
pack = "whole"
train = [{{ path = "{root}/store" }}]
[batch]
global_size = {batch}
micro_size = 2
[preference]
loss = "sigmoid"
beta = {beta}
[optimizer]
lr = {lr}
betas = [0.9, 0.95]
weight_decay = {decay}
clip = {clip}
[schedule]
kind = "constant"
[precision]
compute = "fp32"
[checkpoint]
every = 0
keep = 0
"""


def rows_of(store_log):
    """The number of rows that a run has read of a store."""
    (line,) = [line for line in store_log.splitlines() if "train data:" in line]
    return int(line.split(" rows of ")[0].split()[-1])


@pytest.fixture(scope="module")
def root(run, tmp_path_factory):
    """A model with random weights, a store of pairs, and run.toml."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    folder = tmp_path_factory.mktemp("pairs")
    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in MODEL.items() if k != "torch_dtype"}))
    model.to(torch.float32).save_pretrained(folder / "model")
    make_store(run, folder, PAIRS)
    write(folder, 1)
    run("longhaul", "train", folder / "run.toml", "--set", "run.steps=1")
    rows = rows_of((folder / "run/log.txt").read_text())
    assert rows % 4 == 0 and rows < len(PAIRS), rows
    write(folder, rows)
    return folder


def write(folder, batch):
    (folder / "run.toml").write_text(RUN.format(
        dir=folder / "run", root=folder, steps=STEPS, batch=batch, beta=BETA, lr=ADAM["lr"],
        decay=DECAY, clip=CLIP).replace("micro_size = 2", f"micro_size = {min(batch, 2)}"))


def train(run, root, directory, *sets, ranks=1, check=True):
    words = [f'run.dir="{directory}"', *sets]
    return run("longhaul", "train", root / "run.toml", *[w for s in words for w in ("--set", s)],
               ranks=ranks, check=check)


def losses_of(loss):
    sets = [f'preference.loss="{loss}"']
    if loss in ("robust", "simpo"):
        sets.append(f"preference.label_smoothing={SMOOTHING}")
    if loss == "simpo":
        sets.append(f"preference.simpo_gamma={GAMMA}")
    return sets


@pytest.mark.parametrize("loss", LOSSES)
def test_twenty_steps_have_the_figures_of_a_peer(run, root, tmp_path, loss):
    train(run, root, tmp_path / "run", *losses_of(loss))
    peer = Peer(root / "model", PAIRS, loss)
    records = steps_of(tmp_path / "run")
    assert len(records) == STEPS
    for step, record in records.items():
        for name, want in peer.step().items():
            assert apart(record[name], want) < 1e-4, (step, name, record[name], want)
    if loss == "orpo":
        assert sorted(records[1]["losses"]) == ["chosen_token", "preference"]
    first, last = records[1], records[STEPS]
    assert last["rewards/margins"] > first["rewards/margins"] + 0.1
    assert last["loss"] < first["loss"]


def test_the_first_loss_is_ln_2_to_the_last_bit(run, root, tmp_path):
    for compute in ("fp32", "bf16"):
        train(run, root, tmp_path / compute, "run.steps=1", f'precision.compute="{compute}"')
        record = steps_of(tmp_path / compute)[1]
        assert record["loss"] == math.log(2.0), compute
        assert record["rewards/chosen"] == record["rewards/rejected"] == 0.0


LAYOUTS = {
    "tp2": (2, ["parallel.tp=2"]),
    "tp2_pp2": (4, ["parallel.tp=2", "parallel.pp=2", "batch.micro_size=1"]),
    "dp2": (2, ["parallel.zero=0"]),
    "pp2": (2, ["parallel.pp=2", "batch.micro_size=1"]),
    "cp2": (2, ["parallel.cp=2"]),
    "zero3": (2, ["parallel.zero=3"]),
    "micro1": (1, ["batch.micro_size=1"]),
    "composite": (1, ["run.fused=false"]),
}


@pytest.mark.parametrize("loss", ["sigmoid", pytest.param("ipo", marks=pytest.mark.soak), "orpo"])
@pytest.mark.parametrize("layout", split(LAYOUTS, ["tp2_pp2", "cp2", "zero3", "dp2"]))
def test_a_layout_trains_as_one_rank_does(run, root, tmp_path, loss, layout):
    ranks, sets = LAYOUTS[layout]
    few = [*losses_of(loss), "batch.global_size=4", "run.steps=6"]
    train(run, root, tmp_path / "one", *few)
    train(run, root, tmp_path / "other", *few, *sets, ranks=ranks)
    one, other = steps_of(tmp_path / "one"), steps_of(tmp_path / "other")
    assert len(one) == len(other) == 6
    for step, record in one.items():
        for name in ("loss", "grad_norm", *FIGURES):
            assert apart(record[name], other[step][name]) < 1e-5, (step, name)
    if loss == "sigmoid" and layout != "composite":
        assert other[1]["loss"] == math.log(2.0)


def test_experts_over_ranks_train_on_pairs_as_on_one_rank(run, root, tmp_path):
    model = {**MODEL, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
             "sliding_window": None, "num_local_experts": 4, "num_experts_per_tok": 2,
             "router_aux_loss_coef": 0.02, "output_router_logits": True}
    (tmp_path / "config.json").write_text(json.dumps(model))
    few = [f'model.config="{tmp_path}/config.json"', "init.weights=", "batch.global_size=4",
           "run.steps=4"]
    train(run, root, tmp_path / "one", *few)
    train(run, root, tmp_path / "other", *few, "parallel.ep=2", "parallel.zero=2", ranks=2)
    one, other = steps_of(tmp_path / "one"), steps_of(tmp_path / "other")
    assert one[1]["loss"] == other[1]["loss"] == math.log(2.0)
    assert one[1]["losses"]["preference"] == math.log(2.0)
    assert one[1]["losses"]["router_balance"] > 0.5
    for step, record in one.items():
        for name in ("loss", "grad_norm", *FIGURES):
            assert apart(record[name], other[step][name]) < 1e-5, (step, name)


def test_validation_has_the_figures_of_the_next_step(run, root, tmp_path):
    held_out = f'data.validation=[{{ name = "held", path = "{root}/store" }}]'
    train(run, root, tmp_path / "run", held_out, "validation.every=2", "validation.batches=0",
          "run.steps=5")
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    validations = {r["step"]: r for r in records if "validation" in r}
    steps = steps_of(tmp_path / "run")
    assert sorted(validations) == [0, 2, 4, 5]
    for step in (0, 2, 4):
        for name in ("loss", *FIGURES):
            assert apart(validations[step][name], steps[step + 1][name]) < 1e-6, (step, name)


def reference_file(directory):
    (path,) = (directory / "data").glob("reference_*.bin")
    return path


def test_a_resumed_run_is_bitwise_the_same_and_reads_the_kept_reference(run, root, tmp_path):
    sets = ["batch.global_size=4", "run.steps=8", "checkpoint.every=4"]
    train(run, root, tmp_path / "whole", *sets)
    train(run, root, tmp_path / "parts", *sets, "run.stop_after=4")
    kept = reference_file(tmp_path / "parts")
    before = kept.read_bytes()
    train(run, root, tmp_path / "parts", *sets, "run.stop_after=6")
    assert "pairs made earlier" in (tmp_path / "parts/log.txt").read_text()
    # A damaged file, and then a lost one, is made anew by the weights of the run's start.
    kept.write_bytes(before[:-40] + bytes([before[-40] ^ 1]) + before[-39:])
    train(run, root, tmp_path / "parts", *sets, "run.stop_after=7")
    log = (tmp_path / "parts/log.txt").read_text()
    assert f"{kept} is damaged (its hash differs)" in log
    assert kept.read_bytes() == before
    kept.unlink()
    train(run, root, tmp_path / "parts", *sets)
    assert kept.read_bytes() == before
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    assert tensors(final(tmp_path / "parts")) == tensors(final(tmp_path / "whole"))
    assert state(final(tmp_path / "parts")) == state(final(tmp_path / "whole"))


def test_a_run_that_goes_on_in_another_layout_keeps_its_reference(run, root, tmp_path):
    sets = ["batch.global_size=4", "run.steps=6", "checkpoint.every=3"]
    train(run, root, tmp_path / "one", *sets)
    train(run, root, tmp_path / "other", *sets, "run.stop_after=3")
    train(run, root, tmp_path / "other", *sets, "parallel.tp=2", "parallel.zero=3", ranks=4)
    assert "pairs made earlier" in (tmp_path / "other/log.txt").read_text()
    one, other = steps_of(tmp_path / "one"), steps_of(tmp_path / "other")
    for step, record in one.items():
        for name in ("loss", "grad_norm", *FIGURES):
            assert apart(record[name], other[step][name]) < 1e-5, (step, name)


def scaled_model(root, directory, name, factor):
    """Copies the model, with the weight of this name multiplied."""
    from safetensors.torch import load_file, save_file
    shutil.copytree(root / "model", directory, dirs_exist_ok=True)
    weights = load_file(root / "model/model.safetensors")
    weights[name] = weights[name] * factor
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return f'init.weights="{directory}"'


@pytest.mark.parametrize("sets, ranks", [([], 1), (["parallel.tp=2"], 2)])
def test_a_lost_reference_is_not_made_anew_from_other_weights(run, root, tmp_path, sets, ranks):
    norm = "model.norm.weight"
    few = [scaled_model(root, tmp_path / "model", norm, 1.0), "batch.global_size=4", "run.steps=6"]
    train(run, root, tmp_path / "run", *few, "run.stop_after=3")
    kept = reference_file(tmp_path / "run")
    before = kept.read_bytes()
    kept.unlink()
    scaled_model(root, tmp_path / "model", norm, 1.5)
    training_refused(run, root, [f'run.dir="{tmp_path}/run"', *few], "[preference]", "init.weights",
                     "not that with which the run began")
    assert not list((tmp_path / "run/data").glob("reference_*"))
    # The first weights make the reference again, in another layout too.
    scaled_model(root, tmp_path / "model", norm, 1.0)
    train(run, root, tmp_path / "run", *few, *sets, ranks=ranks)
    assert reference_file(tmp_path / "run").name == kept.name
    after = sums_of(reference_file(tmp_path / "run"))
    kept.write_bytes(before)
    assert list(after) == pytest.approx(list(sums_of(kept)), rel=1e-5)


def test_a_reference_that_is_not_finite_is_refused(run, root, tmp_path):
    weights = scaled_model(root, tmp_path / "model", "lm_head.weight", 1e38)
    training_refused(run, root, [f'run.dir="{tmp_path}/run"', weights], "[preference]", "pair 0",
                     "precision.compute")
    assert not list((tmp_path / "run/data").glob("reference_*"))


def test_a_bench_makes_no_reference(run, root, tmp_path):
    shown = run("longhaul", "bench", root / "run.toml", "--steps", "6", "--set", "batch.global_size=4",
                cwd=tmp_path)
    assert "log-probabilities of" not in shown.stdout + shown.stderr
    assert "matrix products" in shown.stdout


LORA = ['adapter.kind="lora"', "adapter.rank=4", "adapter.alpha=8", "optimizer.lr=1e-2"]


def test_an_adapter_learns_from_pairs_with_its_base_as_reference(run, root, tmp_path):
    sets = [*LORA, "batch.global_size=4", "run.steps=8", "checkpoint.every=4"]
    train(run, root, tmp_path / "one", *sets)
    train(run, root, tmp_path / "tp2", *sets, "parallel.tp=2", ranks=2)
    one, other = steps_of(tmp_path / "one"), steps_of(tmp_path / "tp2")
    assert one[1]["loss"] == other[1]["loss"] == math.log(2.0)
    assert one[8]["rewards/margins"] > 0.1
    for step, record in one.items():
        for name in ("loss", "grad_norm", *FIGURES):
            assert apart(record[name], other[step][name]) < 1e-5, (step, name)
    # The reference that is made anew is that of the base, whatever the adapter has learnt.
    train(run, root, tmp_path / "parts", *sets, "run.stop_after=4")
    kept = reference_file(tmp_path / "parts")
    before = kept.read_bytes()
    kept.unlink()
    train(run, root, tmp_path / "parts", *sets)
    assert kept.read_bytes() == before
    assert curve(tmp_path / "parts") == curve(tmp_path / "one")
    assert tensors(final(tmp_path / "parts")) == tensors(final(tmp_path / "one"))
    train(run, root, tmp_path / "whole", "batch.global_size=4", "run.steps=1")
    assert list(sums_of(kept)) == pytest.approx(
        list(sums_of(reference_file(tmp_path / "whole"))), rel=1e-6)


def sums_of(file):
    """The sums in a file of a reference, behind its first line and its key, before its hash."""
    content = file.read_bytes()
    begin = content.index(b"\n") + 1 + 32
    return [value for (value,) in struct.iter_unpack("<d", content[begin:-32])]


def test_runs_with_one_cache_share_a_reference_only_if_weights_and_rows_agree(run, root, tmp_path):
    cache = f'data.cache="{tmp_path}/cache"'
    for name, *sets in (("one",), ("beta", "preference.beta=0.7"), ("rows", "data.seq_len=64"),
                        ("weights", 'init.weights=""', "run.seed=7")):
        sets = [s for s in sets if s != 'init.weights=""']
        words = ["--set", "init.weights="] if name == "weights" else []
        run("longhaul", "train", root / "run.toml", *words,
            *[w for s in (cache, "run.steps=1", f'run.dir="{tmp_path / name}"',
                          "batch.global_size=2", *sets) for w in ("--set", s)])
        assert steps_of(tmp_path / name)[1]["loss"] == math.log(2.0), name
        made = "by the run's first weights" in (tmp_path / name / "log.txt").read_text()
        assert made == (name != "beta"), name
    assert len(list((tmp_path / "cache").glob("reference_*.bin"))) == 3


@pytest.mark.parametrize("planted", ["sides", "reference"])
def test_the_comparison_sees_what_is_wrong(run, root, tmp_path, planted):
    """Exchanged sides, and the reference of the pair before."""
    pairs = [(p, r, c) for p, c, r in PAIRS] if planted == "sides" else PAIRS
    peer = Peer(root / "model", pairs, "sigmoid")
    if planted == "reference":
        peer.reference = peer.reference.roll(2)
    train(run, root, tmp_path / "run", "run.steps=3")
    records = steps_of(tmp_path / "run")
    wanted = [peer.step() for _ in records]
    assert max(apart(records[s]["rewards/margins"], wanted[s - 1]["rewards/margins"])
               for s in records) > 1e-2


@pytest.mark.parametrize("sets, words", [
    (['preference.loss="dpo"'], ["preference.loss", '"sigmoid"']),
    (["preference.beta=0"], ["preference.beta", "greater than 0"]),
    (["preference.beta=-1"], ["preference.beta", "greater than 0"]),
    (['data.pack="stream"', "data.document_mask=false"], ["[preference]", "data.pack"]),
    (["optimizer.z_loss=1e-4"], ["optimizer.z_loss", "leave it out"]),
    (['preference.loss="robust"', "preference.label_smoothing=0.5"],
     ["preference.label_smoothing", "below 0.5"]),
])
def test_settings_that_cannot_train_are_refused(run, root, sets, words):
    training_refused(run, root, [f'run.dir="{root}/refused"', *sets], "[config]", *words)


def test_pairs_and_preference_belong_together(run, root, tmp_path):
    store = root / "store"
    (tmp_path / "text").mkdir()
    for file in store.iterdir():
        if file.is_file():
            (tmp_path / "text" / file.name).write_bytes(file.read_bytes())
    record = json.loads((store / "store.json").read_text())
    record.pop("kind")
    (tmp_path / "text/store.json").write_text(json.dumps(record))
    refused = [f'run.dir="{root}/refused"']
    training_refused(run, root, [*refused, f'data.train=[{{ path = "{tmp_path}/text" }}]'],
                     tmp_path / "text", "[preference] needs pairs")
    text = (root / "run.toml").read_text()
    (root / "without.toml").write_text(text.replace('loss = "sigmoid"\n', ""))
    for sets, words in (([], "preference.loss"),
                        (['data.pack="stream"'], "preference.loss")):
        result = run("longhaul", "train", root / "without.toml", check=False,
                     *[w for s in (*refused, *sets) for w in ("--set", s)])
        assert result.returncode == 78, result.stderr
        assert str(store) in result.stderr and words in result.stderr, result.stderr
