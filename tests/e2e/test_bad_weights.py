"""Weights that are damaged, contradict each other, are not finite or are not the config's,
and side files that are damaged."""

import json
import os
import shutil
import struct

import pytest
import torch
from programs import later
from refusals import WRONG, refused_without_a_trace, shards, training_refused
from transformers import LlamaForCausalLM


def read_header(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


def write_header(path, header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.fixture(params=["train", "export", *later("eval", "generate")])
def reads_weights(request, run):
    """Returns a check that the verbs which read weights refuse a spoilt models/small."""
    def check(root, *words):
        if request.param == "train":
            training_refused(run, root, [], *words)
            return
        arguments = {"eval": ["eval", "models/small", "--data", "data/mine-val",
                              "--seq-len", "64"],
                     "generate": ["generate", "models/small", "--prompt", "x", "--max-new-tokens", "4"],
                     "export": ["export", "models/small", "--out", "out"]}[request.param]
        refused_without_a_trace(run, root, arguments, *words)
    return check


def inspect_says(run, root, *words):
    result = run("longhaul", "inspect", root / "models/small", check=False)
    assert result.returncode == WRONG and "NOT complete" in result.stdout
    for word in words:
        assert str(word) in result.stdout, result.stdout


def test_truncated_safetensors(run, reads_weights, root):
    shard = shards(root / "models/small")[1]
    size = shard.stat().st_size
    os.truncate(shard, size - 100)
    words = (shard.name, f"the file ends at byte {size - 100}", "the file is truncated")
    reads_weights(root, *words)
    inspect_says(run, root, *words)


def test_a_header_length_past_the_end_of_the_file(run, reads_weights, root):
    shard = shards(root / "models/small")[0]
    data = shard.read_bytes()
    shard.write_bytes(struct.pack("<Q", len(data)) + data[8:])
    words = (shard.name, f"the header length is {len(data)}", "truncated")
    reads_weights(root, *words)
    inspect_says(run, root, *words)


def test_a_header_length_of_exabytes(run, root):
    shard = shards(root / "models/small")[0]
    shard.write_bytes(struct.pack("<Q", 2**63) + shard.read_bytes()[8:])
    refused_without_a_trace(run, root, ["export", "models/small", "--out", "out"], shard.name,
                            str(2**63), "more than the limit")


def test_a_tensor_that_stands_twice_in_a_header(run, reads_weights, root):
    shard = shards(root / "models/small")[0]
    header, body = read_header(shard)
    name = next(n for n in header if n != "__metadata__")
    text = json.dumps(header)
    write_header(shard, (text[:-1] + "," + json.dumps({name: header[name]})[1:]).encode(), body)
    reads_weights(root, shard.name, name, "twice")


def test_a_tensor_in_two_shards(run, reads_weights, root):
    first, second = shards(root / "models/small")[:2]
    header, body = read_header(first)
    name = next(n for n in header if n != "__metadata__")
    other, other_body = read_header(second)
    size = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
    other[name] = {**header[name],
                   "data_offsets": [len(other_body), len(other_body) + size]}
    write_header(second, other, other_body + bytes(size))
    reads_weights(root, second.name, name, "into " + first.name)


def test_overlapping_tensors(run, reads_weights, root):
    shard = max(shards(root / "models/small"), key=lambda s: len(read_header(s)[0]))
    header, body = read_header(shard)
    spans = sorted((e["data_offsets"], n) for n, e in header.items() if n != "__metadata__")
    (first_span, first), (span, second) = spans[0], spans[1]
    # The second tensor starts four bytes early, and the last bytes of the file belong to no tensor.
    header[second]["data_offsets"] = [span[0] - 4, span[1] - 4]
    write_header(shard, header, body)
    reads_weights(root, shard.name, first, second, "overlap")


def test_a_shape_that_is_not_the_configs(run, root):
    path = root / "models/small/config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "intermediate_size": 96}))
    words = ("models/small", "not those of the model's config", "mlp", "[128, 64]", "[96, 64]")
    training_refused(run, root, [], *words)
    refused_without_a_trace(run, root, ["eval", "models/small", "--data", "data/mine-val",
                                        "--seq-len", "64"], *words)


DOWN = "model.layers.1.mlp.down_proj.weight"


def put(root, name, places, value):
    """Writes `value` to elements of an fp32 tensor."""
    shard = next(s for s in shards(root / "models/small") if name in read_header(s)[0])
    header, body = read_header(shard)
    begin = header[name]["data_offsets"][0]
    body = bytearray(body)
    for place in places:
        struct.pack_into("<f", body, begin + 4 * place, value)
    write_header(shard, header, bytes(body))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(run, reads_weights, root, value):
    put(root, DOWN, [3 * 128 + 17, 40 * 128], value)
    reads_weights(root, "models/small", f"{DOWN}[3, 17] is {value}")


@pytest.mark.parametrize("sets", [["parallel.tp=2"], ["parallel.zero=3"]])
def test_several_ranks_name_the_same_element(run, root, sets):
    put(root, DOWN, [3 * 128 + 117, 40 * 128], float("-inf"))
    training_refused(run, root, sets, f"{DOWN}[3, 117] is -inf", ranks=2)


def test_a_run_that_was_saved_with_nan_is_refused_whoever_reads_it(run, root):
    # With a rate beyond all bounds the first update is not finite, and it is saved.
    sets = [word for key in ["run.steps=4", "optimizer.lr=3e38", "schedule.warmup_steps=0",
                             "checkpoint.every=1", "init.certificate=false"] for word in ("--set", key)]
    run("longhaul", "train", "run.toml", *sets, check=False, cwd=root)
    saved = sorted((root / "runs/mine/checkpoints").glob("step_*"))
    assert saved
    for arguments in (["eval", "runs/mine", "--data", "data/mine-val", "--seq-len", "64"],
                      ["generate", "runs/mine", "--prompt", "x", "--max-new-tokens", "4"],
                      ["export", "runs/mine", "--out", "out"]):
        refused_without_a_trace(run, root, arguments, "[values]", saved[-1].name, "] is ")
    result = run("longhaul", "train", "run.toml", *sets, check=False, cwd=root)
    assert result.returncode == WRONG and "[values]" in result.stderr, result.stderr


@pytest.mark.parametrize("form", ["hf", "checkpoint"])
def test_an_import_of_what_is_not_finite(run, root, form):
    model = LlamaForCausalLM.from_pretrained(root / "models/small")
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    model.get_parameter(DOWN).data[3, 17] = float("nan")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, root / "old.pt")
    refused_without_a_trace(run, root, ["import", "old.pt", "--config", "models/small", "--format",
                                        form, "--out", "out"], "old.pt", f"{DOWN}[3, 17] is nan")


def test_an_export_whose_dtype_cannot_hold_a_weight(run, root):
    put(root, DOWN, [3 * 128 + 17], 70000.0)
    refused_without_a_trace(run, root, ["export", "models/small", "--dtype", "fp16", "--out", "out"],
                            f"{DOWN}[3, 17] is 70000, which F16 cannot hold")


def test_a_launch_looks_at_the_weights_before_it_starts_ranks(run, root):
    shards(root / "models/small")[1].unlink()
    for arguments in (["launch", "-n", "2", "run.toml"], ["config", "run.toml"],
                      ["submit", "run.toml", "--nodes", "1", "--dry-run"]):
        refused_without_a_trace(run, root, arguments, "shards are missing")


def test_a_tensor_that_no_file_holds(run, reads_weights, root):
    index = root / "models/small/model.safetensors.index.json"
    text = json.loads(index.read_text())
    del text["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(text))
    words = ("models/small", "1 missing: model.norm.weight [64]")
    reads_weights(root, *words)
    inspect_says(run, root, *words[1:], "model.norm.weight in ", "does not name the tensor")


def test_a_tokenizer_that_is_a_link_to_nothing(run, reads_weights, root):
    path = root / "models/small/tokenizer.json"
    path.unlink()
    path.symlink_to("../../blobs/1f")
    words = ("tokenizer.json: a link to ../../blobs/1f, where nothing is",)
    reads_weights(root, *words)
    inspect_says(run, root, *words)


def test_a_side_file_that_holds_half_its_json(run, reads_weights, root):
    path = root / "models/small/tokenizer_config.json"
    os.truncate(path, path.stat().st_size - 3)
    words = ("tokenizer_config.json: not valid JSON at byte",)
    reads_weights(root, *words)
    inspect_says(run, root, *words)


def test_layers_that_the_weights_lack(run, root):
    training_refused(run, root, ["model.override={num_hidden_layers=3}"], "models/small",
                     "missing", "model.layers.2.")


def test_a_dtype_that_holds_no_weights(run, root):
    shard = shards(root / "models/small")[1]
    header, body = read_header(shard)
    name = next(n for n in header if n != "__metadata__")
    header[name]["dtype"] = "I32"
    write_header(shard, header, body)
    words = (name, "I32")
    training_refused(run, root, [], *words)
    refused_without_a_trace(run, root, ["generate", "models/small", "--prompt", "x"], *words)


@pytest.mark.parametrize("place", ["../outside.safetensors", "/etc/passwd", "a/../../x"])
def test_an_index_path_that_leaves_its_directory(run, root, place):
    index = root / "models/small/model.safetensors.index.json"
    shutil.copy(shards(root / "models/small")[0], root / "models/outside.safetensors")
    text = index.read_text().replace(shards(root / "models/small")[0].name, place)
    index.write_text(text)
    words = ("models/small", f"'{place}' leaves its directory", "refused")
    training_refused(run, root, [], *words)
    refused_without_a_trace(run, root, ["export", "models/small", "--out", "out"], *words)
    inspect_says(run, root, "leaves its directory")


def test_a_missing_shard(run, reads_weights, root):
    shard = shards(root / "models/small")[2]
    count = len(shards(root / "models/small"))
    shard.unlink()
    reads_weights(root, "models/small", f"1 of {count} shards are missing: {shard.name}",
                  "copy them")
    inspect_says(run, root, f"missing: {shard.name}")
