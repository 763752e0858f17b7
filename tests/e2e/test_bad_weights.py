"""Weights that are damaged, contradict each other or are not the config's."""

import json
import os
import shutil
import struct

import pytest
from refusals import WRONG, refused_without_a_trace, shards, training_refused

LATER = [pytest.param(verb, marks=pytest.mark.soak) for verb in ("eval", "generate")]


def read_header(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


def write_header(path, header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.fixture(params=["train", "export", *LATER])
def reads_weights(request, run):
    """The verbs that read weights refuse a spoilt models/small."""
    def check(root, *words):
        if request.param == "train":
            training_refused(run, root, [], *words)
            return
        arguments = {"eval": ["eval", "models/small", "--data", "data/mine-val",
                              "--seq-len", "64"],
                     "generate": ["generate", "models/small", "--prompt", "x"],
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
    words = (shard.name, f"the file at byte {size - 100}", "the file is truncated")
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
    # The second starts four bytes early and the last bytes belong to nobody.
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
