"""Helpers that read what an import has written."""

import json

import torch
from safetensors import safe_open
from safetensors.torch import load_file

# A whole tokenizer.json with a single token.
TOKENIZER = json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})


def tensors_of(path):
    found = {}
    for file in sorted(path.glob("*.safetensors")):
        found.update(load_file(file))
    return found


def bits(tensor):
    return tensor.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32,
                                     8: torch.int64}[tensor.element_size()])


def assert_same(found, expected):
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(bits(found[name]), bits(tensor)), name


def stored_state(path):
    """{kind: {name: whole tensor}} of a longhaul checkpoint, from its own files."""
    found = {}
    for sidecar in sorted(path.glob("*_rank_*.json")):
        data = sidecar.with_suffix(".safetensors")
        boxes = json.loads(sidecar.read_text())["boxes"]
        with safe_open(data, "pt") as file:
            for box in boxes:
                key = f"{box['kind']}/{box['name']}/{','.join(map(str, box['offset']))}"
                whole = found.setdefault(box["kind"], {}).setdefault(
                    box["name"], torch.full(box["shape"], float("nan")))
                place = tuple(slice(o, o + e) for o, e in zip(box["offset"], box["extent"]))
                whole[place] = file.get_tensor(key)
    return found


def save_dcp(value, path):
    import torch.distributed.checkpoint as dcp
    dcp.save(value, checkpoint_id=path, no_dist=True)
