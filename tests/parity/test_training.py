"""Twenty optimizer steps against torch on the same batches, and the export's tensors."""

import functools
import json

import pytest
import torch
from datasets import Dataset
from models import CONFIGS, WITH_EXPERTS, make_model
from programs import later, split
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

STEPS = 20
BATCH = 4
LENGTH = 64
TOLERANCE = 1e-4


def make_rows(seed=3):
    generator = torch.Generator().manual_seed(seed)
    # The distribution is skewed, so that there is something to learn.
    weights = 1.0 / torch.arange(1, 321).float()
    return torch.multinomial(weights, STEPS * BATCH * LENGTH, replacement=True,
                             generator=generator).view(-1, LENGTH)


def torch_curve(model, rows, steps=STEPS, **settings):
    def loss_of(step):
        batch = rows[step * BATCH:(step + 1) * BATCH]
        return model(input_ids=batch, labels=batch).loss

    return torch_curve_of(model, loss_of, steps, **settings)


def torch_curve_of(model, loss_of, steps, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1,
                   eps=1e-8):
    """Losses and norms of torch's AdamW."""
    def is_plain(name):
        return "norm" in name.lower() or ".ln_" in name or name.endswith("bias")

    decayed = [p for n, p in model.named_parameters() if not is_plain(n)]
    plain = [p for n, p in model.named_parameters() if is_plain(n)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": weight_decay},
         {"params": plain, "weight_decay": 0.0}], lr=lr, betas=betas, eps=eps)
    curve = []
    for step in range(steps):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curve.append((loss.item(), norm.item()))
    return curve


def config_text(tmp_path, micro, steps, length):
    return f"""
[run]
dir = "{tmp_path}/run"
steps = {steps}
device = "cpu"
[model]
config = "{tmp_path}/model"
[init]
weights = "{tmp_path}/model"
[data]
seq_len = {length}
shuffle = false
train = [{{ path = "{tmp_path}/rows" }}]
[batch]
global_size = {BATCH}
micro_size = {micro}
[precision]
compute = "fp32"
[optimizer]
lr = 1e-3
[schedule]
kind = "constant"
warmup_steps = 0
"""


def longhaul_curve(run, tmp_path, model, rows, micro=2, sets=(), weight=0.0):
    model.save_pretrained(tmp_path / "model")
    return curve_on(run, tmp_path, rows, micro, sets, weight)


def curve_on(run, tmp_path, rows, micro=2, sets=(), weight=0.0, mask=None):
    """Losses and norms of the model in tmp_path / "model". The loss includes the weighted loss that
    balances experts."""
    ids, length = rows.tolist(), rows.shape[1]
    mask = torch.ones_like(rows) if mask is None else mask
    Dataset.from_dict({
        "input_ids": ids, "attention_mask": mask.tolist(), "labels": ids,
    }).save_to_disk(tmp_path / "rows", num_shards=2)
    (tmp_path / "run.toml").write_text(
        config_text(tmp_path, micro, len(ids) // BATCH, length))
    arguments = [word for key in sets for word in ("--set", key)]
    run("longhaul", "train", tmp_path / "run.toml", *arguments)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    records = [r for r in records if "grad_norm" in r]
    return [(r["loss"] + weight * r.get("losses", {}).get("router_balance", 0.0), r["grad_norm"])
            for r in records]


def balanced(name):
    """The settings with which a run balances experts as transformers does, over all tokens of a
    step."""
    if name not in WITH_EXPERTS:
        return {}
    return dict(micro=BATCH, sets=['experts.balance="pooled"'],
                weight=CONFIGS[name]["router_aux_loss_coef"])


# `make test` tries one model for each kind of block; `make soak` tries the others, too.
NOW = ["llama3_gqa", "gemma3", "gpt2", "pythia", "mixtral"]
SOME = split(CONFIGS, NOW)


@functools.cache
def followed(name):
    """Returns torch's curve of a small model, and the model that it has trained. Several tests
    compare with them."""
    model = make_model(name)
    return torch_curve(model, make_rows()), model


@pytest.fixture(scope="module")
def trained(run, tmp_path_factory):
    """Returns the run directory of a small model and its curve. A model is trained once."""
    @functools.cache
    def call(name):
        path = tmp_path_factory.mktemp(name)
        return path / "run", longhaul_curve(run, path, make_model(name), make_rows(), **balanced(name))

    return call


def worst(ours, theirs):
    assert len(ours) == len(theirs) > 0
    return max(abs(a - b) / abs(b) for x, y in zip(ours, theirs) for a, b in zip(x, y))


@pytest.mark.parametrize("name", SOME)
def test_twenty_steps_follow_torch(trained, name):
    _, ours = trained(name)
    theirs, _ = followed(name)
    assert worst(ours, theirs) <= TOLERANCE
    assert len(ours) == STEPS
    # The loss must fall: a comparison of flat curves would prove little.
    assert theirs[0][0] - theirs[-1][0] >= 0.3


@pytest.mark.parametrize("fault", [
    "optimizer.betas=[0.9, 0.96]", "optimizer.no_decay=[]", "optimizer.lr=1.01e-3",
    *later("optimizer.weight_decay=0.0", "optimizer.clip=0.5", "data.shuffle=true"),
])
def test_a_wrong_setting_is_seen(run, tmp_path, fault):
    rows = make_rows()
    ours = longhaul_curve(run, tmp_path, make_model("llama3_gqa"), rows, sets=[fault])
    assert worst(ours, followed("llama3_gqa")[0]) > TOLERANCE


@pytest.mark.parametrize("name,change", [
    ("mixtral", dict(sets=[])), ("mixtral", dict(sets=['experts.balance="off"'])),
    *later(("qwen3_moe", dict(sets=[])))])
def test_another_balance_of_experts_is_seen(run, tmp_path, name, change):
    rows = make_rows()
    ours = longhaul_curve(run, tmp_path, make_model(name), rows, **{**balanced(name), **change})
    assert worst(ours, followed(name)[0]) > TOLERANCE


@pytest.mark.parametrize("name", ["mixtral", *later("qwen3_moe")])
def test_padding_counts_as_with_the_attention_mask_of_torch(run, tmp_path, name):
    rows = make_rows()
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(4, LENGTH // 2, (len(rows), 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    rows = rows.where(mask == 1, make_model(name).config.pad_token_id)

    def curve_of(masked):
        model = make_model(name)

        def loss_of(step):
            ids, real = (of[step * BATCH:(step + 1) * BATCH] for of in (rows, mask))
            return model(input_ids=ids, attention_mask=real if masked else None,
                         labels=ids.masked_fill(real == 0, -100)).loss

        return torch_curve_of(model, loss_of, STEPS)

    make_model(name).save_pretrained(tmp_path / "model")
    ours = curve_on(run, tmp_path, rows, mask=mask, **balanced(name))
    assert worst(ours, curve_of(masked=True)) <= TOLERANCE
    assert worst(ours, curve_of(masked=False)) > 10 * TOLERANCE


@pytest.mark.parametrize("name", ["llama3_gqa", "tied"])
def test_a_padding_row_that_is_trained_is_seen(run, tmp_path, name):
    rows = make_rows()
    make_model(name).save_pretrained(tmp_path / "model")
    file = tmp_path / "model/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pad_token_id": None}))
    assert worst(curve_on(run, tmp_path, rows), followed(name)[0]) > TOLERANCE


@pytest.mark.parametrize("name", ["llama3_gqa", "tied"])
def test_a_random_start_has_a_padding_row_of_zeros(run, tmp_path, name):
    """transformers initialises the row with zeros as well. A head that is tied to the embedding
    trains it."""
    rows = make_rows()[:BATCH]
    make_model(name).save_pretrained(tmp_path / "model")
    (tmp_path / "model/model.safetensors").unlink()
    curve_on(run, tmp_path, rows, sets=["init.weights="])
    run("longhaul", "export", tmp_path / "run", "--out", tmp_path / "export", "--dtype", "fp32")
    table = load_file(tmp_path / "export/model.safetensors")["model.embed_tokens.weight"]
    size = table.abs().amax(dim=1)
    assert (size[2] == 0) == (name == "llama3_gqa")
    assert size[2] <= 1.1e-3  # one step of Adam
    assert size[torch.arange(320) != 2].min() > 0.01


@pytest.mark.parametrize("name", SOME)
def test_untrained_export_holds_the_same_tensors_and_loads_in_transformers(run, tmp_path, name):
    model = make_model(name)
    model.save_pretrained(tmp_path / "model", max_shard_size="200KB")
    run("longhaul", "export", tmp_path / "model", "--out", tmp_path / "export")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    ours = dict(again.named_parameters())
    assert set(ours) == {n for n, _ in model.named_parameters()}
    for key, value in model.named_parameters():
        assert torch.equal(ours[key].detach(), value.detach()), key


@pytest.mark.parametrize("name", SOME)
def test_export_of_a_run_is_what_transformers_reads(run, tmp_path, trained, name):
    directory, _ = trained(name)
    run("longhaul", "export", directory, "--out", tmp_path / "export")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "export", dtype=torch.float32)
    _, theirs = followed(name)
    for key, value in theirs.named_parameters():
        ours = dict(model.named_parameters())[key]
        assert ((ours - value).norm() / value.norm()).item() <= 1e-3, key
