"""A large state dict is imported in little memory: elements are read by ranges."""

import resource
import subprocess

import nxd_layouts as nxd
import pytest
import torch
from safetensors import safe_open
from transformers import LlamaConfig

LIMIT_KIB = 600_000  # of private writable memory; the weights have 2.0 GB


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """(directory, config, state dict): random bf16 weights of 1.01e9 parameters."""
    path = tmp_path_factory.mktemp("large")
    config = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=8192,
                         num_hidden_layers=14, num_attention_heads=16, num_key_value_heads=8,
                         max_position_embeddings=128)
    config.save_pretrained(path / "hf")
    shapes = {"model.embed_tokens.weight": (32000, 2048), "lm_head.weight": (32000, 2048),
              "model.norm.weight": (2048,)}
    for layer in range(14):
        name = f"model.layers.{layer}."
        for key, shape in {"self_attn.q_proj": (2048, 2048), "self_attn.k_proj": (1024, 2048),
                           "self_attn.v_proj": (1024, 2048), "self_attn.o_proj": (2048, 2048),
                           "mlp.gate_proj": (8192, 2048), "mlp.up_proj": (8192, 2048),
                           "mlp.down_proj": (2048, 8192), "input_layernorm": (2048,),
                           "post_attention_layernorm": (2048,)}.items():
            shapes[name + key + ".weight"] = shape
    # The noise is cheap: each tensor is cut from one pool at another place.
    pool = torch.randn(70_000_000, dtype=torch.bfloat16)
    state = {}
    for i, (name, shape) in enumerate(shapes.items()):
        count = torch.Size(shape).numel()
        begin = i * 7919 % (len(pool) - count)
        state[name] = pool[begin:begin + count].view(shape)
    return path, config, state


def import_limited(binary, *arguments):
    subprocess.run([binary("longhaul"), "import", *map(str, arguments)], check=True,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA,
                                                         (LIMIT_KIB * 1024,) * 2))


def assert_same(path, state):
    seen = 0
    for file in path.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                assert torch.equal(tensors.get_tensor(name), state[name]), name
                seen += 1
    assert seen == len(state)


@pytest.mark.parametrize("form", ["zip", "stream"])
def test_a_state_dict_of_2_gb_takes_less_than_600_mb(binary, large, form):
    path, _, state = large
    file = path / "m.pt"
    torch.save({n: t.clone() for n, t in state.items()}, file,
               _use_new_zipfile_serialization=form == "zip")
    assert file.stat().st_size > 2e9
    import_limited(binary, file, "--config", path / "hf", "--out", path / form)
    assert_same(path / form, state)


def test_shards_of_2_gb_take_less_than_600_mb(binary, large):
    path, config, state = large
    nxd.write_model(path / "nxd", nxd.shard(state, config, 16, 1, 2, "tiled"))
    import_limited(binary, path / "nxd", "--config", path / "hf", "--out", path / "out",
                   "--hardware", "trn1")
    assert_same(path / "out", state)
