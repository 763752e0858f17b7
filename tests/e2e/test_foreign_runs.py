"""A run of another program in its middle: `train` beside it says what to type, and that command
goes on from the run's weights."""

import collections
import json
import re
import shlex

import nxd_layouts as nxd
import pytest
import torch
from bert_examples import small_shards
from import_helpers import save_dcp, stored_state
from programs import SOURCE
from refusals import contents, refused
from safetensors.torch import save_file

RUN = """
[run]
dir = "runs/mine"
steps = 6
device = "cpu"
threads = 1
[model]
config = "MODEL"
[data]
seq_len = 16
train = [{{ {train} }}]
[batch]
global_size = 2
[optimizer]
lr = 1e-9
[schedule]
kind = "constant"
warmup_steps = 0
[checkpoint]
dir = "ckpts"
every = 0
keep = 1
"""
NAMED = {"nxd": "NxD", "smp": "SageMaker", "bert": "BERT", "dcp": "DCP", "trainer": "Trainer",
         "megatron": "Megatron", "deepspeed": "DeepSpeed"}
Theirs = collections.namedtuple("Theirs", "state moments")


def moments_of(state):
    """Moments for the state that are far from those after one step."""
    return {kind: {n: torch.full_like(t, value) for n, t in state.items()}
            for kind, value in (("exp_avg", 0.5), ("exp_avg_sq", 2.0))}


def named(moments):
    return {n: {"step": 5, **{kind: moments[kind][n] for kind in moments}}
            for n in moments["exp_avg"]}


def make_nxd(ckpts, config, state, moments):
    step = ckpts / "step_5"
    nxd.write_step(step, nxd.shard(state, config, 2, 1), step=5)
    nxd.write_zero(step / "optim", nxd.shard(state, config, 2, 1),
                   {k: nxd.shard(v, config, 2, 1) for k, v in moments.items()}, 2, 5)


def make_smp(ckpts, config, state, moments):
    def cut(of):
        return nxd.shard(of, config, 2, 1, qkv="separate", gate_up=False)

    shards = {kind: cut(of) for kind, of in {"weight": state, **moments}.items()}
    for at in shards["weight"]:
        save_dcp({"model": dict(shards["weight"][at]),
                  "optimizer": {"state": named({k: shards[k][at] for k in moments})}},
                 ckpts / "llama_v2-5steps" / f"tp2-{at[1]}")


def make_dcp(ckpts, config, state, moments):
    save_dcp({"model": state, "optimizer": {"state": named(moments)}}, ckpts / "step-5")


def make_trainer(ckpts, config, state, moments):
    step = ckpts / "checkpoint-5"
    step.mkdir(parents=True)
    (step / "config.json").write_text(json.dumps(vars(config)))
    save_file(state, step / "model.safetensors", {"format": "pt"})
    (step / "trainer_state.json").write_text(json.dumps({"global_step": 5}))
    torch.save({"state": {}}, step / "optimizer.pt")


def make_megatron(ckpts, config, state, moments):
    (ckpts / "iter_0000005/mp_rank_00").mkdir(parents=True)
    (ckpts / "latest_checkpointed_iteration.txt").write_text("5")
    torch.save({"model": state}, ckpts / "iter_0000005/mp_rank_00/model_optim_rng.pt")


def make_deepspeed(ckpts, config, state, moments):
    (ckpts / "global_step5").mkdir(parents=True)
    (ckpts / "latest").write_text("global_step5")
    (ckpts / "zero_to_fp32.py").write_text("raise SystemExit('not run here')\n")
    torch.save({"module": state}, ckpts / "global_step5/mp_rank_00_model_states.pt")


MAKERS = {"nxd": make_nxd, "smp": make_smp, "dcp": make_dcp, "trainer": make_trainer,
          "megatron": make_megatron, "deepspeed": make_deepspeed}


def make_bert(run, folder):
    from transformers import BertConfig, BertForPreTraining
    torch.manual_seed(0)
    config = BertConfig(vocab_size=35, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                        intermediate_size=48, max_position_embeddings=32)
    config.save_pretrained(folder / "MODEL")
    model = BertForPreTraining(config)
    state = {n: p.detach() for n, p in model.named_parameters()}
    moments = moments_of(state)
    numbers = {i: named(moments)[n] for i, n in enumerate(state)}
    (folder / "ckpts").mkdir()
    torch.save({"model": model.state_dict(),
                "optimizer": {"state": numbers, "param_groups": [{"params": list(numbers)}]}},
               folder / "ckpts/ckpt_5.pt")
    shards = small_shards(run, folder / "data", 16, 3)
    (folder / "run.toml").write_text(RUN.format(train=f'path = "{shards}"'))
    return Theirs(state, moments)


def make(run, folder, program):
    """Makes the files of another program in the middle of a run, and a run file whose
    checkpoint.dir has the other program's checkpoints."""
    if program == "bert":
        return make_bert(run, folder)
    config, state = nxd.make_state(folder / "MODEL", torch.float32, layers=1)
    (folder / "MODEL/tokenizer.json").unlink()
    moments = moments_of(state)
    MAKERS[program](folder / "ckpts", config, state, moments)
    (folder / "run.toml").write_text(RUN.format(train="synthetic = 100"))
    return Theirs(state, moments)


def typed(run, folder, command):
    program, *words = shlex.split(command)
    return run(program, *words, cwd=folder)


def steps(folder):
    lines = (folder / "runs/mine/metrics.jsonl").read_text().splitlines()
    return [r["step"] for r in map(json.loads, lines) if "grad_norm" in r]


def start(run, folder, *sets, check=False, verb=("train",)):
    return run("longhaul", *verb, "run.toml", *[w for s in sets for w in ("--set", s)],
               cwd=folder, check=check)


@pytest.mark.parametrize("program", NAMED)
def test_a_start_beside_it_is_refused_and_what_it_says_goes_on_from_it(run, tmp_path, program):
    theirs = make(run, tmp_path, program)
    before = contents(tmp_path / "ckpts")
    first = start(run, tmp_path)
    refused(first, NAMED[program], "ckpts", "checkpoint.resume = \"never\"")
    assert "RANDOM" not in first.stdout + first.stderr
    for verb in (("launch", "-n", "1"), ("config",), ("submit", "--nodes", "1", "--dry-run")):
        assert NAMED[program] in start(run, tmp_path, verb=verb).stderr
    if program in ("megatron", "deepspeed"):
        assert "init.weights" in first.stderr and contents(tmp_path / "ckpts") == before
        assert ("zero_to_fp32.py ckpts " in first.stderr) == (program == "deepspeed")
        return
    for command in re.findall(r"`(longhaul import [^`]+)`", first.stderr):
        typed(run, tmp_path, command)
    [[key, value]] = re.findall(r'set ((?:checkpoint|init)\.\w+) = ("[^"]+")', first.stderr)
    start(run, tmp_path, f"{key}={value}", check=True)
    assert {name: data for name, data in contents(tmp_path / "ckpts").items()
            if name in before} == before
    if program == "trainer":
        assert steps(tmp_path) == [1, 2, 3, 4, 5, 6]
    else:
        assert steps(tmp_path) == [6]
        assert "was imported" in (tmp_path / "runs/mine/log.txt").read_text()
    saved = stored_state(tmp_path / "ckpts/step_00000006")
    assert len(saved["weight"]) == len(theirs.state)
    largest = max(float(t.abs().max()) for t in saved["exp_avg"].values())
    if program == "trainer":
        assert largest < 0.2  # moments of its own alone, of gradients that are clipped at 1
    else:
        for kind, least in (("exp_avg", 0.3), ("exp_avg_sq", 1.8)):
            assert all(float(t.min()) > least for t in saved[kind].values()), kind
    if program != "bert":  # whose parameters have other names here
        for name, tensor in theirs.state.items():
            assert torch.allclose(saved["weight"][name], tensor, atol=1e-6), name
    # The same command goes on from longhaul's own checkpoint, and the other program's files stay.
    start(run, tmp_path, f"{key}={value}", "run.steps=7", check=True)
    assert steps(tmp_path)[-2:] == [6, 7]
    assert not before.keys() - contents(tmp_path / "ckpts").keys()


def test_train_refuses_it_before_it_opens_the_data(run, tmp_path):
    make(run, tmp_path, "nxd")
    missing = 'data.train=[{ path = "missing" }]'
    refused(start(run, tmp_path, missing), "NxD", "ckpts/step_5 --config MODEL")
    refused(start(run, tmp_path, missing, "checkpoint.resume=never"), "missing")


def test_inspect_and_resume_say_the_same_and_never_begins_beside_it(run, tmp_path):
    make(run, tmp_path, "nxd")
    command = "`longhaul import ckpts/step_5 --config MODEL --format checkpoint --out ./ckpts-imported`"
    key = 'set checkpoint.resume = "./ckpts-imported"'
    for sets in (["checkpoint.resume=ckpts/step_5"], ["checkpoint.resume=./ckpts"],
                 ["checkpoint.resume=5"], ["run.dir=ckpts"]):
        for verb in (("train",), ("launch", "-n", "1")):
            refused(start(run, tmp_path, *sets, verb=verb), "NxD", "ckpts/step_5 --config MODEL", key)
    for path in ("ckpts", "ckpts/"):
        refused(run("longhaul", "inspect", path, cwd=tmp_path, check=False), "NxD", command, key)
    theirs = contents(tmp_path / "ckpts")
    begun = start(run, tmp_path, "checkpoint.resume=never", check=True)
    assert "RANDOM" in begun.stdout + begun.stderr
    # A restart goes on from its own checkpoint, and keeps all checkpoints of the other program.
    for count in (7, 8):
        again = start(run, tmp_path, f"run.steps={count}", check=True)
        assert "passed over" not in again.stdout + again.stderr
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not theirs.keys() - contents(tmp_path / "ckpts").keys()
    assert (tmp_path / "ckpts/step_00000008").is_dir() and not (tmp_path / "ckpts/step_00000006").exists()


def test_the_commands_of_the_page_go_on_from_a_run_of_nxd(run, tmp_path):
    make(run, tmp_path, "nxd")
    page = (SOURCE / "docs/migrating.md").read_text().split("## In the middle of a run\n")[1]
    first, *others = re.search(r"```sh\n(.*?)```", page, re.S)[1].splitlines()
    assert len(others) == 2
    refused(run(*shlex.split(first, comments=True), cwd=tmp_path, check=False), others[0])
    for command in others:
        run(*shlex.split(command), cwd=tmp_path)
    assert steps(tmp_path) == [6]


def test_a_directory_of_the_trainer_is_inspected_as_the_model_that_it_is(run, tmp_path):
    make(run, tmp_path, "trainer")
    shown = run("longhaul", "inspect", "ckpts/checkpoint-5", cwd=tmp_path).stdout
    assert "Hugging Face model ckpts/checkpoint-5: complete" in shown
    assert 'set init.weights = "ckpts/checkpoint-5"; its moments and its step stay behind' in shown
