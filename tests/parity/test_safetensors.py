"""Weights that the safetensors package and transformers write are read bit for bit, and
what is exported is what they read back."""

import json
import random
import struct

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def special_values(dtype):
    """All 16-bit patterns as values, ties between bf16 and fp16 neighbours, and noise."""
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    values = torch.cat([
        bits.view(torch.bfloat16).float(),
        bits.view(torch.float16).float(),
        (bits.view(torch.bfloat16).float().view(torch.int32) + 0x8000).view(torch.float32),
        torch.randn(65536, generator=torch.Generator().manual_seed(1)),
    ])
    return values[torch.isfinite(values)].to(dtype)


def make_model(path, dtype, shard_size):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=320, hidden_size=64, intermediate_size=96,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=64)
    model = LlamaForCausalLM(config)
    values = special_values(torch.float32)
    with torch.no_grad():
        flat = model.model.embed_tokens.weight.view(-1)
        picks = torch.randperm(len(values))[: len(flat)]
        flat.copy_(values[picks].clamp(-6e4, 6e4))
    model.to(dtype).save_pretrained(path, max_shard_size=shard_size)
    return {name: t.detach() for name, t in model.state_dict().items()}


def all_tensors(path):
    tensors = {}
    for file in sorted(path.glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def bits(tensor):
    width = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.contiguous().view(width)


@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize("wanted", DTYPES)
def test_export_converts_as_torch_does(run, tmp_path, stored, wanted):
    source = make_model(tmp_path / "in", DTYPES[stored], "40KB")
    run("longhaul", "export", tmp_path / "in", "--out", tmp_path / "out", "--dtype", wanted,
        "--shard-size", "60KB")
    found = all_tensors(tmp_path / "out")
    assert found.keys() == source.keys()
    for name, tensor in source.items():
        expected = tensor.to(DTYPES[wanted])
        assert found[name].dtype == DTYPES[wanted]
        assert torch.equal(bits(found[name]), bits(expected)), name


def test_the_exported_directory_loads_in_transformers_with_identical_tensors(run, tmp_path):
    source = make_model(tmp_path / "in", torch.bfloat16, "40KB")
    run("longhaul", "export", tmp_path / "in", "--out", tmp_path / "out")
    model = LlamaForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert model.dtype == torch.bfloat16
    found = model.state_dict()
    assert found.keys() == source.keys()
    assert all(torch.equal(found[name], source[name]) for name in source)


def test_index_and_metadata_are_those_of_the_package(run, tmp_path):
    make_model(tmp_path / "in", torch.float32, "5GB")
    run("longhaul", "export", tmp_path / "in", "--out", tmp_path / "out", "--shard-size",
        "100KB")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    total = 0
    for name, file in index["weight_map"].items():
        with safe_open(tmp_path / "out" / file, "pt") as shard:
            assert shard.metadata() == {"format": "pt"}
            total += shard.get_tensor(name).nbytes
    assert total == index["metadata"]["total_size"]


def mutants(good, count):
    """Files that differ from a good one in a few bytes of the header or in their length."""
    rng = random.Random(7)
    (length,) = struct.unpack("<Q", good[:8])
    for _ in range(count):
        data = bytearray(good)
        kind = rng.randrange(4)
        if kind == 0:
            data = data[: rng.randrange(len(data))]
        elif kind == 1:
            data[rng.randrange(8)] = rng.randrange(256)
        elif kind == 2:
            data += bytes(rng.randrange(1, 9))
        else:
            for _ in range(rng.randrange(1, 3)):
                data[8 + rng.randrange(length)] = rng.choice(b'0123456789"{}[],:FaIU ')
        yield bytes(data)


@pytest.mark.parametrize("count", [40, pytest.param(600, marks=pytest.mark.soak)])
def test_what_the_package_refuses_is_refused(run, tmp_path, count):
    good = tmp_path / "good.safetensors"
    save_file({"a": torch.arange(6.0).view(2, 3), "b": torch.ones(5, dtype=torch.bfloat16),
               "c": torch.zeros(4, dtype=torch.int64)}, good)
    assert run("longhaul", "inspect", good).returncode == 0
    refused = 0
    for data in mutants(good.read_bytes(), count):
        file = tmp_path / "mutant.safetensors"
        file.write_bytes(data)
        result = run("longhaul", "inspect", file, check=False)
        assert result.returncode in (0, 78), result.stderr
        try:
            load_file(file)
        except (SafetensorError, ValueError, KeyError, OSError, AttributeError):
            refused += 1
            assert result.returncode == 78, data
            assert str(file) in result.stderr
    assert refused > count / 3
