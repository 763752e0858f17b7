"""BERT's logits, losses, first gradients and twenty steps against transformers, with dropout off,
and its weights in both directions."""

import json

import h5py
import pytest
import torch
from bert_models import MODELS, as_bert, call, fields_of, joined, make_bert
from bert_rows import make_examples
from models import distance
from safetensors.torch import load_file, save_file
from test_training import torch_curve_of, worst
from transformers import BertForMaskedLM, BertForPreTraining

LOGITS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
TOLERANCE = 1e-4
STEPS = 20
BATCH = 4


def write_tokens(path, fields):
    length = fields["input_ids"].shape[1]
    ends = fields["attention_mask"].sum(1, keepdim=True).expand(-1, length)
    tensors = {"tokens": fields["input_ids"], "targets": fields["labels"], "document_end": ends,
               "segments": fields["token_type_ids"],
               "next_sentence": fields["next_sentence_label"]}
    save_file({name: value.int().contiguous() for name, value in tensors.items()}, path)


def differences(run, tmp_path, name, *options, change=None):
    """The largest distance of each result from transformers'."""
    model = make_bert(name)
    model.save_pretrained(tmp_path / "model")
    if change:
        file = tmp_path / "model" / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    return differences_on(run, tmp_path, model, fields_of(make_examples(5, 64, 10)), *options)


def differences_on(run, tmp_path, model, fields, *options):
    """The largest distance of each result from transformers', for the model in tmp_path /
    "model"."""
    write_tokens(tmp_path / "tokens.safetensors", fields)
    run("longhaul_model_tool", tmp_path / "model", tmp_path / "tokens.safetensors",
        tmp_path / "out.safetensors", *options)
    found = load_file(tmp_path / "out.safetensors")
    logits, relation, losses = call(model, fields)
    sum(losses).backward()
    theirs = joined({n: p.grad for n, p in model.named_parameters()})
    ours = as_bert({n[5:]: v for n, v in found.items() if n.startswith("grad.")})
    assert set(ours) == set(theirs)
    total = torch.sqrt(sum(g.double().square().sum() for g in theirs.values()))
    result = {"logits": distance(found["logits"], logits[fields["labels"] >= 0].detach()),
              "loss": distance(found["loss"], sum(losses).detach().view(1)),
              "gradients": max(
                  ((ours[n].double() - g.double()).norm()
                   / (g.double().norm() + 1e-6 * total)).item() for n, g in theirs.items())}
    for term, loss in enumerate(losses):
        result[f"loss {term}"] = distance(found[f"loss.{term}"], loss.detach().view(1))
    if relation is not None:
        result["relation"] = distance(found["relation"], relation.detach())
    return result


def assert_equal(found, logits=LOGITS_TOLERANCE, loss=LOGITS_TOLERANCE,
                 gradients=GRADIENT_TOLERANCE):
    for key, value in found.items():
        limit = gradients if key == "gradients" else loss if "loss" in key else logits
        assert value <= limit, found


@pytest.mark.parametrize("options", [[], ["--plain"], ["--recompute"]],
                         ids=["fused", "composite", "recompute"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_losses_and_gradients_are_those_of_transformers(run, tmp_path, name, options):
    assert_equal(differences(run, tmp_path, name, *options))


@pytest.mark.parametrize("name", ["pretraining", "masked"])
def test_bf16_is_as_close_as_bf16_can_be(run, tmp_path, name):
    assert_equal(differences(run, tmp_path, name, "--dtype", "bf16"), 2e-2, 2e-3, 3e-2)


@pytest.mark.parametrize("change", [
    dict(hidden_act="gelu_new"), dict(layer_norm_eps=1e-3), dict(num_attention_heads=3)],
    ids=str)
def test_mathematics_that_is_a_little_off_is_seen(run, tmp_path, change):
    found = differences(run, tmp_path, "pretraining", change=change)
    assert found["logits"] > LOGITS_TOLERANCE and found["gradients"] > GRADIENT_TOLERANCE, found


@pytest.mark.parametrize("fault", ["halved_positions", "wrong_denominator", "halved_gradient"])
def test_a_planted_fault_is_seen(run, tmp_path, fault):
    found = differences(run, tmp_path, "pretraining", "--fault", fault)
    assert max(found.values()) > GRADIENT_TOLERANCE, found
    assert (found["logits"] > LOGITS_TOLERANCE) == (fault == "halved_positions"), found


def test_a_padding_row_that_is_trained_is_seen(run, tmp_path):
    found = differences(run, tmp_path, "padding", "--fault", "trained_padding")
    assert found["gradients"] > 10 * GRADIENT_TOLERANCE, found


RUN = """
[run]
dir = "{path}/run"
steps = {steps}
device = "cpu"
[model]
config = "{path}/model"
[init]
weights = "{path}/model"
[data]
seq_len = {length}
shuffle = false
train = [{{ path = "{path}/a_training_0.hdf5" }}]
[batch]
global_size = {batch}
micro_size = 2
[precision]
compute = "fp32"
[optimizer]
lr = 1e-3
[schedule]
kind = "constant"
warmup_steps = 0
"""


def write_shard(path, arrays):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, compression="gzip")


def train(run, tmp_path, name, arrays, *sets):
    make_bert(name).save_pretrained(tmp_path / "model")
    write_shard(tmp_path / "a_training_0.hdf5", arrays)
    rows, length = arrays["input_ids"].shape
    (tmp_path / "run.toml").write_text(
        RUN.format(path=tmp_path, length=length, batch=BATCH, steps=rows // BATCH))
    run("longhaul", "train", tmp_path / "run.toml", *[w for s in sets for w in ("--set", s)])
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if "grad_norm" in r]


@pytest.mark.parametrize("name", ["pretraining", "masked", "padding"])
def test_twenty_steps_follow_torch_and_their_export_is_the_same_model(run, tmp_path, name):
    arrays = make_examples(STEPS * BATCH, 64, 10)
    records = train(run, tmp_path, name, arrays)
    model = make_bert(name)
    terms = []

    def loss_of(step):
        losses = call(model, fields_of(arrays, slice(step * BATCH, (step + 1) * BATCH)))[2]
        terms.append([loss.item() for loss in losses])
        return sum(losses)

    theirs = torch_curve_of(model, loss_of, STEPS)
    assert worst([(r["loss"], r["grad_norm"]) for r in records], theirs) <= TOLERANCE
    assert theirs[0][0] - theirs[-1][0] >= 0.3
    if name == "pretraining":
        ours = [[r["losses"]["masked_token"], r["losses"]["next_sentence"]] for r in records]
        assert worst(ours, terms) <= TOLERANCE
    run("longhaul", "export", tmp_path / "run", "--out", tmp_path / "export")
    again = MODELS[name][0].from_pretrained(tmp_path / "export", dtype=torch.float32)
    for key, value in model.named_parameters():
        # The bias of keys is left out: its gradient is rounding only, and Adam makes it as large as
        # others.
        if not key.endswith("key.bias"):
            assert distance(dict(again.named_parameters())[key].detach(),
                            value.detach()) <= 1e-3, key
    fields = fields_of(make_examples(6, 64, 10, seed=9))
    for a, b in zip(call(again.eval(), fields)[2], call(model.eval(), fields)[2], strict=True):
        assert abs(a - b) <= 1e-4 * b


def old_name(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias",
                                                                      "LayerNorm.beta")


@pytest.mark.parametrize("name", MODELS)
def test_untrained_export_holds_the_same_tensors(run, tmp_path, name):
    model = make_bert(name)
    model.save_pretrained(tmp_path / "model", max_shard_size="200KB")
    run("longhaul", "export", tmp_path / "model", "--out", tmp_path / "export")
    again = dict(MODELS[name][0].from_pretrained(tmp_path / "export").named_parameters())
    assert set(again) == {n for n, _ in model.named_parameters()}
    for key, value in model.named_parameters():
        assert torch.equal(again[key].detach(), value.detach()), key


@pytest.mark.parametrize("sets", [[], ["parallel.zero=1"]], ids=["one", "two ranks"])
def test_names_of_the_first_files_are_read_and_not_written(run, tmp_path, sets):
    model = make_bert("pretraining")
    model.save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = {old_name(n): v for n, v in load_file(file).items()}
    assert sum(n.endswith("gamma") for n in tensors) == 2 * 3 + 2
    # The tensors are buffers and copies, which such files may hold.
    tensors["bert.embeddings.position_ids"] = torch.arange(128).view(1, -1)
    tensors["cls.predictions.decoder.weight"] = model.cls.predictions.decoder.weight.detach().clone()
    tensors["cls.predictions.decoder.bias"] = model.cls.predictions.bias.detach().clone()
    save_file(tensors, file, metadata={"format": "pt"})
    arrays = make_examples(2 * BATCH, 64, 10)
    write_shard(tmp_path / "a_training_0.hdf5", arrays)
    (tmp_path / "run.toml").write_text(RUN.format(path=tmp_path, length=64, batch=BATCH, steps=2))
    said = run("longhaul", "train", tmp_path / "run.toml", "--set", "optimizer.lr=1e-12",
               *[w for s in sets for w in ("--set", s)], ranks=1 + len(sets))
    assert "certificate: the loaded model's logits agree" in said.stdout
    run("longhaul", "export", tmp_path / "run", "--out", tmp_path / "export")
    again = dict(BertForPreTraining.from_pretrained(tmp_path / "export", dtype=torch.float32)
                 .named_parameters())
    for key, value in model.named_parameters():
        assert (again[key].detach() - value.detach()).abs().max() <= 1e-11, key
    assert not any(n.endswith(("gamma", "beta")) for n in load_file(
        tmp_path / "export" / "model.safetensors"))


def test_a_published_file_with_both_heads_is_read_as_its_config_says(run, tmp_path):
    """config.json of the published models names BertForMaskedLM only, and their files also hold the
    other head."""
    model = make_bert("pretraining")
    model.save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()),
                                "architectures": ["BertForMaskedLM"]}))
    run("longhaul", "export", tmp_path / "model", "--out", tmp_path / "export")
    again = BertForMaskedLM.from_pretrained(tmp_path / "export")
    fields = fields_of(make_examples(6, 64, 10, seed=9))
    with torch.no_grad():
        assert distance(call(again.eval(), fields)[0], call(model.eval(), fields)[0]) <= 1e-6


def test_another_mathematics_is_found_by_the_certificate(run, tmp_path):
    make_bert("pretraining").save_pretrained(tmp_path / "model")
    arrays = make_examples(BATCH, 64, 10)
    write_shard(tmp_path / "a_training_0.hdf5", arrays)
    (tmp_path / "run.toml").write_text(RUN.format(path=tmp_path, length=64, batch=BATCH, steps=1))
    (tmp_path / "other").mkdir()
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "other/config.json").write_text(json.dumps({**config, "num_attention_heads": 3}))
    said = run("longhaul", "train", tmp_path / "run.toml", "--set",
               f"model.config={tmp_path / 'other'}", check=False)
    assert said.returncode == 78 and "layer 0" in said.stderr, said.stderr
    assert "num_attention_heads (3 in the run, 6 beside the weights)" in said.stderr
