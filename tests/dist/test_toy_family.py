"""A family that lives in a test's folder only (tests/toy_family), by the list of
docs/adding.md: nothing else knows it, and it trains in every kind of layout."""

import json
import subprocess

import pytest
from layouts import FP32, RUN, parallel, relative

TOY = {"architectures": ["ToyForCausalLM"], "model_type": "toy", "vocab_size": 301, "width": 48,
       "depth": 4, "torch_dtype": "float32"}
LAYOUTS = {"tp2_sequence": parallel(2, tp=2), "zero3": parallel(2, zero=3),
           "pp2_dp2": parallel(4, pp=2, pipeline="zb-h1", zero=2), "cp2": parallel(2, cp=2),
           "recompute": (1, ['memory.recompute="full"'])}


@pytest.fixture(scope="module")
def toy(run, store, tmp_path_factory):
    """Trains a few steps in a layout and returns their losses and norms."""

    def call(ranks, keys):
        path = tmp_path_factory.mktemp("toy")
        (path / "model").mkdir()
        (path / "model/config.json").write_text(json.dumps(TOY))
        (path / "run.toml").write_text(RUN.format(dir=path / "run", steps=6, store=store,
                                                  beta1=0.9, model=path / "model"))
        done = run("longhaul_toy_tool", path / "run.toml", 6,
                   *[w for s in (*keys, *FP32) for w in ("--set", s)], ranks=ranks,
                   env={"OMP_NUM_THREADS": "1"})
        steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(steps) == 6
        return {key: [s[key] for s in steps] for key in ("loss", "grad_norm")} | {
            name: [dict(s["losses"])[name] for s in steps] for name in ("next_token", "size")}

    return call


@pytest.fixture(scope="module")
def one(toy):
    return toy(1, [])


def test_a_new_family_learns(one):
    assert one["loss"][-1] < one["loss"][0] - 0.1
    assert one["loss"] == one["next_token"]
    assert min(one["size"]) > 0.0


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_new_family_trains_in_every_kind_of_layout(toy, one, name):
    found = toy(*LAYOUTS[name])
    for figure, values in one.items():
        assert relative(found[figure], values) <= 1e-5, figure


def test_the_program_does_not_know_it(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TOY))
    done = run("longhaul", "inspect", tmp_path, check=False)
    assert 'model_type "toy" is not available' in done.stdout + done.stderr
