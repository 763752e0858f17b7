"""The mean of checkpoints that runs of several layouts have saved."""

import json
import pathlib

import gguf
import pytest
import torch
from runs import MODEL, TEXT
from safetensors.torch import load_file

GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 300, "n_embd": 64, "n_layer": 2,
        "n_head": 4, "n_positions": 256, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.05, "torch_dtype": "bfloat16"}


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def trained(request, run, tmp_path_factory):
    """A run that was saved by tp 2, by two replicas with ZeRO 3 and by one rank."""
    place = tmp_path_factory.mktemp(request.param)
    (place / "model").mkdir()
    (place / "model/config.json").write_text(json.dumps(MODEL if request.param == "llama" else GPT2))
    (place / "run.toml").write_text(TEXT.format(dir=place / "run", model=place / "model"))
    for steps, ranks, sets in ((2, 2, ["parallel.tp=2"]), (4, 2, ["parallel.zero=3"]), (6, 1, [])):
        run("longhaul", "train", place / "run.toml", *[w for s in (
            "checkpoint.every=2", "run.steps=6", f"run.stop_after={steps}", *sets) for w in ("--set", s)], ranks=ranks)
    return place


def exported(run, place, name, *words, ranks=1):
    run("longhaul", "export", *words, "--out", place / name, ranks=ranks)
    return load_file(place / name / "model.safetensors")


def is_nearest(ours, exact):
    """Whether no neighbour of the narrow numbers is nearer to the exact ones."""
    off = [(torch.nextafter(ours, torch.full_like(ours, to)).double() - exact).abs() for to in (-9e9, 9e9)]
    return bool(((ours.double() - exact).abs() <= torch.minimum(*off)).all())


def test_the_mean_is_torchs_in_fp64_rounded_once(run, trained):
    steps = [exported(run, trained, f"step{n}", trained / f"run/checkpoints/step_{n:08}") for n in (2, 4, 6)]
    for dtype, words in ((torch.float32, []), (torch.bfloat16, ["--dtype", "bf16"])):
        mean = exported(run, trained, f"mean{dtype}", trained / "run", "--average", "2,4,6", *words)
        assert mean.keys() == steps[0].keys() and len(mean) > 10
        for name, ours in mean.items():
            total = sum(step[name].double() for step in steps) / 3
            assert ours.dtype == dtype and is_nearest(ours, total), name
            assert not torch.equal(ours, steps[-1][name].to(dtype)), name
    shared = exported(run, trained, "shared", trained / "run", "--average", "6,4,2", ranks=2)
    assert all(torch.equal(shared[name], (sum(s[name].double() for s in steps) / 3).float()) for name in shared)
    config = json.loads((trained / "meantorch.float32/config.json").read_text())
    assert "float32" in (config.get("dtype"), config.get("torch_dtype"))


def test_the_mean_as_gguf_is_that_of_its_directory(run, trained):
    exported(run, trained, "hf", trained / "run", "--average", "2,6")
    found = []
    for name, words in (("mean.gguf", [trained / "run", "--average", "6,2"]), ("hf.gguf", [trained / "hf"])):
        said = run("longhaul", "export", *words, "--format", "gguf", "--out", trained / name).stdout
        found.append({tensor.name: (tensor.tensor_type, tensor.data.tobytes())
                      for tensor in gguf.GGUFReader(trained / name).tensors})
        assert ("the mean of steps 2, 6 of" in said) == (name == "mean.gguf")
    assert found[0] == found[1] and len(found[0]) > 10


def test_steps_without_a_valid_checkpoint_are_refused_by_name(run, trained, tmp_path):
    def refusal(steps):
        said = run("longhaul", "export", trained / "run", "--average", steps, "--out", tmp_path / "out", check=False)
        assert said.returncode == 78 and not (tmp_path / "out").exists()
        return said.stderr

    assert "has no valid checkpoint step_00000003; it has step_00000006, step_00000004, step_00000002" in refusal("2,3")
    assert "step 2 is given more than once" in refusal("2,2")
    file = next(pathlib.Path(trained / "run/checkpoints/step_00000004").glob("*_rank_*.safetensors"))
    good = file.read_bytes()
    file.write_bytes(good[:-1])
    assert "step_00000004" in (said := refusal("2,4")) and file.name in said
    file.write_bytes(good)
