"""Adapters against peft on the same batches: losses, norms and tensors of twenty steps, and files in
peft's format in both directions."""

import functools
import json
import re

import pytest
import torch
from datasets import Dataset
from models import make_model
from peft import LoraConfig, PeftModel, get_peft_model
from programs import later, split
from safetensors.torch import load_file, save_file
from test_training import BATCH, LENGTH, STEPS, config_text, make_rows, torch_curve
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4  # of losses and norms, relative
LOGITS = 1e-5

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# For each case: the model, the settings of peft, and those of longhaul.
CASES = {
    "lora": ("llama3_gqa", dict(r=4, lora_alpha=12, target_modules=ALL),
             ['adapter.kind="lora"', "adapter.rank=4", "adapter.alpha=12"]),
    "rslora": ("llama3_gqa", dict(r=8, lora_alpha=6, use_rslora=True, target_modules=["q_proj", "v_proj"]),
               ['adapter.kind="lora"', "adapter.rank=8", "adapter.alpha=6", "adapter.rslora=true",
                'adapter.modules=["q_proj","v_proj"]']),
    # Queries, keys and values of Qwen 2 have biases, which stand behind the scaled rows.
    "dora": ("qwen2", dict(r=4, lora_alpha=8, use_dora=True, target_modules=ALL),
             ['adapter.kind="dora"', "adapter.rank=4", "adapter.alpha=8"]),
    "whole": ("llama3_gqa", dict(r=2, lora_alpha=4, target_modules=["o_proj", "up_proj"],
                                 modules_to_save=["lm_head", "model.norm"]),
              ['adapter.kind="lora"', "adapter.rank=2", "adapter.alpha=4",
               'adapter.modules=["o_proj","up_proj"]', 'adapter.save=["lm_head","model.norm"]']),
    # Attention beside experts that have no adapter.
    "beside_experts": ("mixtral", dict(r=4, lora_alpha=12, target_modules=["q_proj", "v_proj"]),
                       ['adapter.kind="lora"', "adapter.rank=4", "adapter.alpha=12",
                        'adapter.modules=["q_proj","v_proj"]']),
    # The model has a layer without experts.
    "experts": ("qwen3_moe", dict(r=4, lora_alpha=12, target_modules=["o_proj"],
                                  target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]),
                ['adapter.kind="lora"', "adapter.rank=4", "adapter.alpha=12",
                 'adapter.modules=["o_proj","mlp.experts.gate_up_proj","mlp.experts.down_proj"]']),
    "experts_inside": ("mixtral", dict(r=4, lora_alpha=12, target_modules=[],
                                       target_parameters=["experts.gate_up_proj"]),
                       ['adapter.kind="lora"', "adapter.rank=4", "adapter.alpha=12",
                        'adapter.modules=["experts.gate_up_proj"]']),
}


def base_of(name):
    """The base of a case. Its loss has no term that balances experts."""
    model = make_model(CASES[name][0])
    if hasattr(model.config, "output_router_logits"):
        model.config.output_router_logits = False
    return model


def adapted(name):
    """The base of a case with a random adapter, whose B is not zero."""
    model, settings = base_of(name), CASES[name][1]
    torch.manual_seed(1)
    made = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for key, value in made.named_parameters():
            if "lora_B" in key:
                value.normal_(std=0.05)
    return made


def tensors_of(model, path):
    model.save_pretrained(path)
    return load_file(path / "adapter_model.safetensors")


@functools.cache
def followed(name, steps=STEPS):
    """The curve of peft's model, and the model that was trained."""
    model = adapted(name)
    return torch_curve(model, make_rows(), steps), model


class Place:
    """A directory with a base, an adapter of it, data and a run file."""

    def __init__(self, run, path, name, begin=True):
        self.run, self.path, self.name = run, path, name
        base_of(name).save_pretrained(path / "model")
        if begin:
            adapted(name).save_pretrained(path / "first")
        ids = make_rows().tolist()
        Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * LENGTH] * len(ids),
                           "labels": ids}).save_to_disk(path / "rows")
        (path / "run.toml").write_text(config_text(path, 2, STEPS, LENGTH))
        self.sets = [*CASES[name][2], *([f'init.adapter="{path}/first"'] if begin else [])]

    def train(self, *sets, ranks=1, verb=(), **options):
        words = [*verb, *(w for s in [*self.sets, *sets] for w in ("--set", s))]
        return self.run("longhaul", "train", self.path / "run.toml", *words, ranks=ranks,
                        env={"OMP_NUM_THREADS": "1"}, **options)

    def curve(self, run="run"):
        lines = (self.path / run / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [(r["loss"], r["grad_norm"]) for r in records if "grad_norm" in r]

    def export(self, *words, run="run", to="export"):
        self.run("longhaul", "export", self.path / run, "--out", self.path / to, *words)
        return self.path / to

    def base(self):
        return read_model(self.path / "model")


def read_model(path):
    return AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", experts_implementation="eager")


def worst(ours, theirs):
    assert len(ours) == len(theirs) > 0
    return max(abs(a - b) / abs(b) for x, y in zip(ours, theirs) for a, b in zip(x, y))


def off(ours, theirs):
    """How far tensors are from each other, as a share of their norm."""
    assert ours.keys() == theirs.keys()
    return max(((ours[n].double() - t.double()).norm() / t.double().norm()).item()
               for n, t in theirs.items())


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=make_rows()[:2]).logits


def difference(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


@pytest.fixture(scope="module")
def trained(run, tmp_path_factory):
    @functools.cache
    def call(name):
        place = Place(run, tmp_path_factory.mktemp(name), name)
        place.log = place.train().stdout
        return place

    return call


@pytest.mark.parametrize("name", split(CASES, [*list(CASES)[:4], "beside_experts", "experts"]))
def test_twenty_steps_from_an_adapter_of_peft_follow_peft(trained, name):
    place = trained(name)
    theirs, _ = followed(name)
    ours = place.curve()
    assert worst(ours[:1], theirs[:1]) <= 1e-5
    assert worst(ours, theirs) <= TOLERANCE and len(ours) == STEPS
    assert theirs[0][0] - theirs[-1][0] >= 0.05  # flat curves would prove little
    assert place.log.count("certificate:") == 2


def first_gradients(name):
    """The clipped gradients of peft's first step, under our names."""
    model, rows = adapted(name), make_rows()[:BATCH]
    model(input_ids=rows, labels=rows).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return {re.sub(r"^base_model\.model\.|\.default(?=\.)|\.modules_to_save", "", key).replace(
        "vector.weight", "vector"): value.grad for key, value in model.named_parameters()
        if value.grad is not None}


EXPERT = re.compile(r"(.*\.)(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.lora_([AB])\.weight")


def experts_together(tensors, rank=4):
    """Our tensors of experts under the names and in the shapes of peft, which has one A for gate and
    up, and one tensor for all experts of a layer (ParamWrapper.get_delta_weight)."""
    found, layers = {}, {}
    for name, value in tensors.items():
        if match := EXPERT.fullmatch(name):
            layer, expert, projection, half = match.groups()
            halves = layers.setdefault(f"{layer}mlp.experts", {}).setdefault(int(expert), {})
            part = {"w1": "gate", "w3": "up", "w2": "down"}.get(projection, projection.removesuffix("_proj"))
            halves[part + half] = value.view(rank, -1) if half == "A" else value.view(-1, rank)
        else:
            found[name] = value
    for module, experts in layers.items():
        of = [experts[e] for e in range(len(experts))]
        inner = f"{module}.base_layer" if {"gateA", "downA"} <= of[0].keys() else module
        parts = []
        if "gateA" in of[0]:
            parts.append((inner, [e["gateA"] for e in of], [torch.cat([e["gateB"], e["upB"]]) for e in of]))
        if "downA" in of[0]:
            parts.append((module, [e["downA"] for e in of], [e["downB"] for e in of]))
        for name, a, b in parts:
            found[f"{name}.lora_A.weight"] = torch.cat(a)
            found[f"{name}.lora_B.weight"] = torch.stack(b, dim=2).flatten(1)
    return found


@pytest.mark.parametrize("name", split(CASES, ["dora", "whole", "experts"]))
def test_first_gradients_of_every_tensor_are_those_of_peft(run, tmp_path, name):
    place = Place(run, tmp_path, name)
    place.train("run.stop_after=1")
    moments = {}
    for path in (tmp_path / "run/checkpoints").rglob("*.safetensors"):
        moments.update(load_file(path))
    # The first moment is a tenth of the gradient.
    ours = {key.split("/")[1]: 10 * value.flatten() for key, value in moments.items()
            if key.startswith("exp_avg/")}
    ours = {key: value.flatten() for key, value in experts_together(ours).items()}
    theirs = {key: value.flatten() for key, value in first_gradients(name).items()}
    assert off(ours, theirs) <= TOLERANCE


@pytest.mark.parametrize("name", split(CASES, ["lora", "dora", "whole", "experts"]))
def test_what_is_exported_is_read_by_peft_and_is_its_adapter(trained, tmp_path, name):
    place = trained(name)
    _, model = followed(name)
    out = place.export()
    assert {p.name for p in out.iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
    assert not (out / "config.json").exists()
    theirs = tensors_of(model, tmp_path / "theirs")
    first = load_file(place.path / "first/adapter_model.safetensors")
    ours = load_file(out / "adapter_model.safetensors")
    assert off(ours, theirs) <= 1e-3 < off(first, theirs)
    read = PeftModel.from_pretrained(place.base(), out)
    assert off(tensors_of(read, tmp_path / "again"), ours) == 0
    # The same values in both programs give the same logits.
    merged = read_model(place.export("--merge", to="merged"))
    assert difference(logits(merged), logits(read)) <= LOGITS
    assert difference(logits(place.base()), logits(read)) > 100 * LOGITS
    for words in ([place.path / "run"], [place.path / "model", "--adapter", out],
                  [place.path / "merged"]):
        said = place.run("longhaul", "eval", *words, "--data", place.path / "rows", "--seq-len", LENGTH,
                         "--json").stdout
        assert json.loads(said)["loss"] == pytest.approx(loss_of(read), rel=1e-5)


def loss_of(model):
    rows = make_rows()
    with torch.no_grad():
        return torch.stack([model.eval()(input_ids=rows[i:i + BATCH], labels=rows[i:i + BATCH]).loss
                            for i in range(0, len(rows), BATCH)]).mean().item()


def test_a_scale_without_alpha_is_seen(run, tmp_path):
    place = Place(run, tmp_path, "lora")
    config = json.loads((tmp_path / "first/adapter_config.json").read_text())
    config["lora_alpha"] = 4
    (tmp_path / "first/adapter_config.json").write_text(json.dumps(config))
    result = place.train("run.stop_after=2", check=False)
    assert result.returncode == 78 and "adapter.alpha is 12" in result.stderr
    place.train("run.stop_after=2", "adapter.alpha=4")
    assert worst(place.curve(), followed("lora")[0][:2]) > 10 * TOLERANCE


def test_exchanged_experts_are_seen(run, tmp_path):
    place = Place(run, tmp_path, "experts")
    path = tmp_path / "first/adapter_model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if ".experts." in name and "lora_B" in name]:
        out, experts = tensors[name].shape[0], 8
        tensors[name] = tensors[name].view(out, -1, experts).flip(2).reshape(out, -1).contiguous()
    save_file(tensors, path, {"format": "pt"})
    place.train("run.stop_after=2")
    assert worst(place.curve(), followed("experts")[0][:2]) > 10 * TOLERANCE


def test_a_new_adapter_changes_nothing_until_it_is_trained(run, tmp_path):
    place = Place(run, tmp_path, "dora", begin=False)
    place.train("run.stop_after=1", "optimizer.lr=1e-12")
    rows = make_rows()[:BATCH]
    with torch.no_grad():
        loss = make_model(CASES["dora"][0])(input_ids=rows, labels=rows).loss.item()
    assert place.curve()[0][0] == pytest.approx(loss, rel=1e-6)
    ours = load_file(place.export() / "adapter_model.safetensors")
    base = load_file(tmp_path / "model/model.safetensors")
    for name, value in ours.items():
        module = name.removeprefix("base_model.model.").rsplit(".lora_", 1)[0]
        if "lora_A" in name:  # kaiming_uniform_ with a = sqrt(5)
            bound = value.shape[1] ** -0.5
            assert 0.9 * bound < value.abs().max() <= bound and value.mean().abs() < 0.2 * bound
        elif "lora_B" in name:
            assert value.abs().max() <= 1e-9
        else:
            assert off({name: value}, {name: base[module + ".weight"].norm(dim=1)}) < 1e-6


def test_a_new_adapter_in_bf16_begins_at_a_base_in_bf16(run, tmp_path):
    place = Place(run, tmp_path, "lora", begin=False)
    weights = tmp_path / "model/model.safetensors"
    save_file({name: value.bfloat16() for name, value in load_file(weights).items()}, weights, {"format": "pt"})
    losses = {}
    for kind in ("lora", "dora"):
        place.train("run.stop_after=1", "precision.compute=bf16", f'adapter.kind="{kind}"',
                    f'run.dir="{tmp_path}/{kind}"')
        losses[kind] = place.curve(kind)[0][0]
    assert losses["dora"] == pytest.approx(losses["lora"], rel=1e-6)


@pytest.mark.parametrize("name,sets,saved", [
    ("whole", ["adapter.dropout=0.1", 'adapter.save=["model.norm"]'], {"base_model.model.model.norm.weight"}),
    *later(("experts", [], set()))])
def test_checkpoints_hold_the_adapter_alone_and_a_resume_is_bitwise(run, tmp_path, name, sets, saved):
    place = Place(run, tmp_path, name, begin=False)
    place.train(*sets, "run.stop_after=6")
    place.train(*sets, "run.stop_after=3", f'run.dir="{tmp_path}/half"')
    place.train(*sets, "run.stop_after=6", f'run.dir="{tmp_path}/half"')
    assert place.curve("half") == place.curve() and len(place.curve()) == 6
    whole, half = (load_file(place.export(run=r, to=f"out_{r}") / "adapter_model.safetensors")
                   for r in ("run", "half"))
    assert off(half, whole) == 0
    assert {n for n in whole if "lora_" not in n} == saved
    held = sum(p.stat().st_size for p in (tmp_path / "run/checkpoints").rglob("*.safetensors"))
    base = sum(p.stat().st_size for p in (tmp_path / "model").glob("*.safetensors"))
    assert held < base / 2


def test_a_run_finds_its_base_from_another_directory(run, tmp_path, monkeypatch):
    place = Place(run, tmp_path, "lora", begin=False)
    monkeypatch.chdir(tmp_path)
    place.train("run.stop_after=2", 'init.weights="model"')
    here = place.export("--merge", to="here")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    there = place.export("--merge", to="there")
    place.export("--merge", "--format", "gguf", to="merged.gguf")
    run("longhaul", "import", tmp_path / "merged.gguf", "--out", tmp_path / "back")
    for path in (there, tmp_path / "back"):
        assert off(*(load_file(p / "model.safetensors") for p in (path, here))) == 0


def test_another_base_is_refused(run, tmp_path):
    place = Place(run, tmp_path, "lora", begin=False)
    place.train("run.stop_after=2")
    path = tmp_path / "model/model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][3] += 0.01
    save_file(tensors, path, {"format": "pt"})
    result = place.train("run.stop_after=4", check=False)
    assert result.returncode == 78 and "another base" in result.stderr
    result = place.train(f'run.dir="{tmp_path}/other"', f'init.weights="{tmp_path}/run"', check=False)
    assert result.returncode == 78 and "export RUN --merge" in result.stderr
    result = run("longhaul", "export", tmp_path / "run", "--merge", "--out", tmp_path / "merged",
                 check=False)
    assert result.returncode == 78 and "another base" in result.stderr


@pytest.mark.parametrize("model,sets,words", [
    ("lora", ['adapter.modules=["q_prox"]'], ['"q_prox" matches no module', "gate_proj, k_proj"]),
    ("lora", ['adapter.save=["head"]'], ['"head" matches no module', "embed_tokens"]),
    ("lora", ['adapter.save=["q_proj"]'], ["both mean model.layers.0.self_attn.q_proj"]),
    ("lora", ["adapter.rank=0"], ["adapter.rank"]),
    ("lora", ['optimizer.kind="lamb"'], ["lora_B is 0"]),
    ("lora", ['optimizer.groups=[{match="embed",frozen=true}]'], ["adapter.modules and adapter.save"]),
    ("lora", ['optimizer.groups=[{match="embed",lr_scale=0.5}]'], ["is not trained beside an adapter"]),
])
def test_settings_that_do_not_fit_are_refused(trained, model, sets, words):
    place = trained(model)
    result = place.train(*sets, f'run.dir="{place.path}/other"', check=False)
    assert result.returncode == 78 and all(w in result.stderr for w in words), result.stderr
    assert not (place.path / "other/checkpoints").exists()


@pytest.mark.parametrize("name,sets,words", [
    ("gpt2", [], ["c_attn", "a part of the tensor"]),
    ("qwen3_moe", ['adapter.modules=["down_proj"]'], ["mlp.experts.down_proj", "as in PEFT"]),
    ("qwen3_moe", ['adapter.modules=["mlp.experts.down_proj"]', "adapter.dropout=0.1"],
     ["adapter.dropout = 0.1 is not available for experts"]),
    ("tied", ['adapter.save=["embed_tokens"]'], ["is tied to lm_head"]),
])
def test_models_that_files_hold_otherwise_are_refused(run, tmp_path, name, sets, words):
    place = Place(run, tmp_path, "lora", begin=False)
    make_model(name).save_pretrained(tmp_path / "other")
    result = place.train(f'model.config="{tmp_path}/other"', f'init.weights="{tmp_path}/other"', *sets,
                         check=False)
    assert result.returncode == 78 and all(w in result.stderr for w in words), result.stderr


@pytest.mark.parametrize("change,words", [
    ({"use_dora": True}, ["adapter.kind is lora"]),
    ({"new_field": 3}, ["new_field"]),
    ("nan", ["lora_A", "nan"]),
    ("shape", ["wrong"]),
    ("lacking", ["missing"]),
    ("twice", ["does not begin with base_model.model."]),
])
def test_adapters_that_do_not_fit_are_refused(trained, tmp_path, change, words):
    place = trained("lora")
    adapter = tmp_path / "adapter"
    model = adapted("lora")
    model.save_pretrained(adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    tensors = load_file(adapter / "adapter_model.safetensors")
    name = sorted(tensors)[0]
    if isinstance(change, dict):
        config.update(change)
    elif change == "nan":
        tensors[name][0, 0] = float("nan")
    elif change == "shape":
        tensors[name] = tensors[name][:, :-1].contiguous()
    elif change == "twice":
        tensors[name.removeprefix("base_model.model.")] = 2 * tensors[name]
    else:
        del tensors[name]
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, adapter / "adapter_model.safetensors", {"format": "pt"})
    result = place.train(f'init.adapter="{adapter}"', f'run.dir="{tmp_path}/run"', check=False)
    assert result.returncode == 78 and all(w in result.stderr.lower() for w in map(str.lower, words))


def evaluate(place, adapter, **options):
    return place.run("longhaul", "eval", place.path / "model", "--adapter", adapter, "--data", place.path / "rows",
                     "--seq-len", LENGTH, "--json", **options)


@pytest.mark.parametrize("fields,kept,words", [
    ({}, "nothing", ["no tensors"]),
    ({}, "layers.0", ["means 14 modules", "model.layers.1.mlp.down_proj"]),
    ({"target_modules": "all-linear"}, "layers.0", ["means 14 modules"]),
    ({"layers_to_transform": [0]}, "", ["no low-rank part for 14 modules", "model.layers.1"]),
    ({"layers_to_transform": 0}, "layers.0", []),
    ({"exclude_modules": ["layers.1.mlp.down_proj"]}, "", ["for 1 modules"]),
    ({"target_modules": r".*\.layers\.0\..*_proj"}, "layers.0", []),
    ({"target_modules": r".*\.(layers\.0|layers\.1)\..*_proj"}, "layers.0", ["means 7 modules"]),
    ({"target_modules": "(?<!a)b"}, "", ["pattern that cannot be read"]),
    ({"modules_to_save": ["lm_head"]}, "", ["means 1 modules", "lm_head"]),
])
def test_eval_wants_the_tensors_of_all_modules_that_an_adapter_means(trained, tmp_path, fields, kept, words):
    place = trained("lora")
    adapted("lora").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | fields))
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    save_file({n: t for n, t in tensors.items() if kept in n}, tmp_path / "adapter_model.safetensors")
    result = evaluate(place, tmp_path, check=False)
    assert result.returncode == (78 if words else 0), result.stderr
    assert all(w in result.stderr for w in words), result.stderr


def layout(ranks, **keys):
    return ranks, [f"parallel.{key}={value}" for key, value in keys.items()]


LAYOUTS = {
    "dp2": (layout(2, zero=0), []),
    # Without sequence parallelism a half that is whole needs its sum most.
    "tp2": (layout(2, tp=2, sequence="false"), []),
    "tp2_pp2": (layout(4, tp=2, pp=2), []),
    "zero3": (layout(2, zero=3), ["batch.micro_size=1"]),
    "cp2": (layout(2, cp=2), []),
    "ep2": (layout(2, ep=2, zero=0), []),
    "ep2_tp2": (layout(4, ep=2, tp=2), []),
    "ep2_zero3": (layout(4, ep=2, zero=3), ["batch.micro_size=1"]),
}


@pytest.mark.parametrize("name,where", [("lora", "tp2"), ("dora", "tp2"), ("whole", "zero3"),
                                        ("experts", "ep2_tp2"), *later(
    ("lora", "dp2"), ("lora", "cp2"), ("dora", "tp2_pp2"), ("dora", "zero3"), ("dora", "cp2"),
    ("whole", "tp2_pp2"), ("experts", "ep2"), ("experts", "tp2"), ("experts", "zero3"), ("experts", "cp2"),
    ("experts", "tp2_pp2"), ("experts", "ep2_zero3"), ("experts_inside", "tp2"),
    ("beside_experts", "zero3"))])
def test_layouts_follow_one_rank(trained, name, where):
    place = trained(name)
    (ranks, keys), sets = LAYOUTS[where]
    place.train(*keys, *sets, f'run.dir="{place.path}/{where}"', ranks=ranks)
    assert worst(place.curve(where), place.curve()) <= 1e-5
    ours, one = (load_file(place.export(run=r, to=f"out_{where}_{r}") / "adapter_model.safetensors")
                 for r in (where, "run"))
    assert off(ours, one) <= 1e-4


def test_dropout_is_the_same_where_inputs_are_split(run, tmp_path):
    place = Place(run, tmp_path, "lora")
    sets = ["adapter.dropout=0.2", "run.stop_after=4"]
    place.train(*sets)
    place.train(*sets, "parallel.tp=2", f'run.dir="{tmp_path}/tp2"', ranks=2)
    assert worst(place.curve("tp2"), place.curve()) <= 1e-5
    assert worst(place.curve(), followed("lora")[0][:4]) > TOLERANCE


@pytest.mark.parametrize("name,first", [("lora", "parallel.tp=2"), *later(("experts", "parallel.ep=2"))])
def test_a_run_goes_on_in_another_layout(trained, name, first):
    place = trained(name)
    for sets, ranks, steps in (([first], 2, 10), (["parallel.zero=3", "batch.micro_size=1"], 2, 20)):
        place.train(*sets, f"run.stop_after={steps}", f'run.dir="{place.path}/moved"', ranks=ranks)
    assert worst(place.curve("moved"), place.curve()) <= 1e-5


def test_a_base_in_bf16_has_no_masters_and_a_run_is_rehearsed(run, tmp_path):
    place = Place(run, tmp_path, "lora", begin=False)
    place.sets += ["precision.compute=bf16"]
    said = place.train("run.stop_after=1", verb=["--rehearse"]).stdout
    assert "rehearsal: export:" in said and "is what was saved" in said
    trained = load_file(place.export() / "adapter_model.safetensors").values()
    # Masters and two moments in fp32; each tensor begins at a multiple of 1024 elements.
    kilobytes = 12 * sum(-(-t.numel() // 1024) * 1024 for t in trained) / 1e3
    held = float(re.search(r"([0-9.]+) kB of optimizer state", said)[1])
    assert held == pytest.approx(kilobytes, rel=1e-3)
