"""Random model directories, sound and damaged: `inspect`, `export` and `eval` judge them alike,
the weights that count are those that transformers takes, and what was named is what is there."""

import json
import os
import re
import shutil

import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, WRONG = 64, 78
SIDE = ["LICENSE", "NOTICE.txt", "chat_template.jinja", "chat_template.json", "added_tokens.json",
        "additional_chat_templates/tool_use.jinja", "special_tokens_map.json", "vocab.json",
        "preprocessor_config.json", "merges.txt", "tekken.json", "README.md"]
LEFT = ["modeling_own.py", "optimizer.pt", "runs/events.bin", "training_args.bin"]
# Damages of a sound directory. `None` is the most frequent one, so that many directories stay
# sound.
DAMAGES = [None, None, None, "missing", "misshapen", "surplus", "integers", "dangling shard",
           "dangling side file", "broken JSON", "truncated", "shard gone", "nan", "stale copy",
           "winning copy", "unnamed tensor"]


def draw(rng):
    return {"sets": rng.sample(["single", "index", "named"], rng.randint(1, 3)),
            "side": rng.sample(SIDE, rng.randint(0, len(SIDE))), "left": rng.sample(LEFT, rng.randint(0, 3)),
            "damage": rng.choice(DAMAGES), "layers": rng.randint(1, 3), "tied": rng.random() < 0.3,
            "older": rng.random() < 0.5, "seed": rng.randrange(2 ** 31)}


def write_sets(case, path):
    """Writes sets of weights, each with other values. Returns the file names of the set that
    transformers takes."""
    config = LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=case["layers"],
                         num_attention_heads=2, num_key_value_heads=1, vocab_size=VOCABULARY,
                         max_position_embeddings=32, tie_word_embeddings=case["tied"])
    torch.manual_seed(case["seed"])
    path.mkdir()
    files = {}
    for kind in sorted(case["sets"]):
        own = path.parent / kind
        LlamaForCausalLM(config).save_pretrained(own, max_shard_size="5KB" if kind == "index" else "1GB")
        if kind == "named":
            os.rename(own / "model.safetensors", own / "chosen.safetensors")
        files[kind] = sorted(p.name for p in own.glob("*.safetensors"))
        for file in own.iterdir():
            shutil.move(file, path / file.name)
            if case["older"] == (kind == "single"):
                os.utime(path / file.name, (1e9, 1e9))
    if "named" in files:
        text = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**text, "transformers_weights": "chosen.safetensors"}))
    return files[next(kind for kind in ("named", "single", "index") if kind in files)]


def make_data(path):
    rows = [[(7 * i + j) % VOCABULARY for j in range(8)] for i in range(4)]
    Dataset.from_dict({"input_ids": rows}).save_to_disk(path)
    return path


def write_files(case, path):
    for name in case["side"] + case["left"]:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text('{"x": 1}' if name.endswith(".json") else name)


def rewrite(file, change):
    tensors = {n: t.clone() for n, t in load_file(file).items()}
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def set_index(path, change):
    index = path / "model.safetensors.index.json"
    text = json.loads(index.read_text())
    change(text["weight_map"])
    index.write_text(json.dumps(text))


def spoil(case, path, files):
    """Makes the damage. Returns the words that a refusal must have, or None where nothing is
    wrong."""
    damage, first, last = case["damage"], path / files[0], path / files[-1]
    name = sorted(load_file(first))[0]
    sharded = len(files) > 1
    if damage == "dangling shard":
        last.unlink()
        last.symlink_to("../blobs/1f")
        return [last.name, "a link to ../blobs/1f, where nothing is"]
    if damage == "shard gone" and sharded:
        last.unlink()
        return [last.name, "missing"]
    if damage == "truncated":
        os.truncate(last, last.stat().st_size - 8)
        return [last.name, "truncated"]
    if damage == "missing":
        rewrite(first, lambda tensors: tensors.pop(name))
        if sharded:
            set_index(path, lambda names: names.pop(name))
        return [name]
    if damage == "surplus":
        rewrite(first, lambda tensors: tensors.update({"own.weight": torch.ones(3)}))
        if sharded:
            set_index(path, lambda names: names.update({"own.weight": first.name}))
        return ["own.weight [3]"]
    if damage == "unnamed tensor" and sharded:
        rewrite(first, lambda tensors: tensors.update({"own.weight": torch.ones(3)}))
        return None
    if damage == "misshapen":
        rewrite(first, lambda tensors: tensors.update({name: torch.ones(5)}))
        return [name, "found [5]"]
    if damage == "integers":
        rewrite(first, lambda tensors: tensors.update({name: tensors[name].int()}))
        return [name, "I32"]
    if damage == "stale copy" and sharded:  # an earlier file holds another copy: the last wins
        other = sorted(load_file(last))[0]
        rewrite(first, lambda tensors: tensors.update({other: torch.zeros(7)}))
        return None
    if damage == "winning copy" and sharded:
        rewrite(last, lambda tensors: tensors.update({name: load_file(first)[name] + 1}))
        return [name, first.name, last.name]
    if damage == "dangling side file":
        (path / "tokenizer_config.json").symlink_to("../blobs/2a")
        return ["tokenizer_config.json", "a link to ../blobs/2a, where nothing is"]
    if damage == "broken JSON":
        (path / "generation_config.json").unlink(missing_ok=True)
        (path / "generation_config.json").write_text('{"a": ')
        return ["generation_config.json", "not valid JSON at byte 7"]
    return None


def put_nan(path, files):
    """Puts a NaN into a tensor; returns the words that name the element."""
    name = "model.layers.0.mlp.down_proj.weight"
    file = next(path / f for f in files if name in load_file(path / f))
    rewrite(file, lambda tensors: tensors[name].view(-1)[37:50:12].fill_(float("nan")))
    return f"{name}[{37 // 24}, {37 % 24}] is nan"


def refused(result, words):
    assert result.returncode == WRONG, (result.returncode, result.stdout, result.stderr)
    for word in words:
        assert word in result.stdout + result.stderr, (word, result.stdout, result.stderr)


def check_sound(case, path, run):
    """Checks which weights are exported, and which files are carried along and left behind."""
    exported = run("longhaul", "export", path / "model", "--out", path / "out").stdout
    ours = load_file(path / "out" / "model.safetensors")
    theirs = LlamaForCausalLM.from_pretrained(path / "model", dtype=torch.float32)
    for name, value in theirs.named_parameters():
        assert torch.equal(ours[name], value), name
    again = LlamaForCausalLM.from_pretrained(path / "out", dtype=torch.float32)
    for (name, value), other in zip(theirs.named_parameters(), again.parameters()):
        assert torch.equal(value, other), name
    for name in case["side"]:
        assert (path / "out" / name).read_bytes() == (path / "model" / name).read_bytes(), name
    for name in case["left"]:
        assert not (path / "out" / name).exists()
        assert name.split("/")[0] in exported, (name, exported)


def check(case, path, run):
    torch.set_num_threads(1)
    model = path / "model"
    files = write_sets(case, model)
    write_files(case, model)
    words = spoil(case, model, files)
    judges = {"inspect": ["inspect", model], "export": ["export", model, "--out", path / "refused"],
              "eval": ["eval", model, "--data", make_data(path / "data"), "--seq-len", "8"]}
    if case["damage"] == "nan":
        element = put_nan(model, files)
        assert run("longhaul", "inspect", model, check=False).returncode == 0
        for verb in ("export", "eval"):
            refused(run("longhaul", *judges[verb], check=False), [element])
        assert not (path / "refused").exists()
        return
    if words is not None:
        for verb in judges:
            refused(run("longhaul", *judges[verb], check=False), words)
        assert not (path / "refused").exists()
        return
    for verb in ("inspect", "eval"):
        run("longhaul", *judges[verb])
    assert not re.search("NOT complete", run("longhaul", "inspect", model).stdout)
    check_sound(case, path, run)
    shutil.rmtree(path / "out")
