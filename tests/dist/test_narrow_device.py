"""Training on a device that has no 64-bit numbers and writes only whole tensors, in host memory
here: the software accelerator refuses everything else by name (SOFTDEV_NARROW)."""

import functools
import json

import h5py
import pytest
from bert_rows import make_examples
from layouts import (BF16_MODEL, FEW, FP32, IN_BF16, LAYOUTS, MODELS, Tolerance, curve, relative,
                     run_layout, step_dir, train, violations, write_run)
from programs import BIN, later, split

DEVICE = ['run.device="plugin"',
          f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"']
PLAIN = ["run.fused=false"]
LAMB = ['optimizer.kind="lamb"']
ONE = (1, [])
# Sums are of other dtypes and in another order. Losses agree to 1e-6.
SAME = Tolerance(1e-6, 1e-5, 1e-5)
MIXTURES = ["mixtral", "qwen3_moe"]
DENSE = [name for name in MODELS if name not in MIXTURES + ["bert"]]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("SOFTDEV_NARROW", "1")


@pytest.fixture
def judged(judged):
    """Trains for a few steps only, since the software accelerator is slow."""
    return functools.partial(judged, pad_token_id=None, steps=FEW)


@pytest.mark.parametrize("name", split(LAYOUTS, ["zero3"]))
def test_a_layout_on_a_narrow_device_is_that_of_a_cpu(judged, name):
    ours = judged(LAYOUTS[name], *FP32, *DEVICE)
    assert not violations(ours, judged(LAYOUTS[name], *FP32, *PLAIN), SAME)


@pytest.mark.parametrize("name", split(LAYOUTS, ["tp2_sequence"]))
def test_lamb_on_a_narrow_device_is_that_of_a_cpu(judged, name):
    ours = judged(LAYOUTS[name], *FP32, *LAMB, *DEVICE)
    assert not violations(ours, judged(LAYOUTS[name], *FP32, *LAMB, *PLAIN), SAME)


@pytest.mark.parametrize("family", split(DENSE, ["gpt_neox"]))
def test_a_dense_family_on_a_narrow_device_is_that_of_a_cpu(judged, family):
    ours = judged(ONE, *FP32, *DEVICE, model_type=family)
    assert not violations(ours, judged(ONE, *FP32, *PLAIN, model_type=family), SAME)


@pytest.mark.parametrize("name", later("tp2_sequence", "cp2_ring", "pp2", "zero3"))
def test_bf16_on_a_narrow_device_is_that_of_a_cpu(judged, name):
    ours = judged(LAYOUTS[name], *DEVICE, **BF16_MODEL)
    assert not violations(ours, judged(LAYOUTS[name], *PLAIN, **BF16_MODEL), IN_BF16)


@pytest.mark.parametrize("setting", later("data.document_mask=true", 'memory.recompute="full"',
                                          'memory.recompute="selective"', "optimizer.z_loss=1e-3"))
def test_a_setting_on_a_narrow_device_is_that_of_a_cpu(judged, setting):
    ours = judged(LAYOUTS["tp2_sequence"], *FP32, setting, *DEVICE)
    assert not violations(ours, judged(LAYOUTS["tp2_sequence"], *FP32, setting, *PLAIN), SAME)


@pytest.mark.parametrize("layout", ["one", *later("tp2_sequence", "pp2", "zero3", "cp2_ring")])
def test_bert_with_dropout_on_a_narrow_device_is_that_of_a_cpu(run, tmp_path_factory, layout):
    path = tmp_path_factory.mktemp("bert")
    with h5py.File(path / "a_training_0.hdf5", "w") as file:
        for name, values in make_examples(160, 32, 6).items():
            file.create_dataset(name, data=values)
    ours, cpu = (run_layout(run, tmp_path_factory.mktemp("run"), path / "a_training_0.hdf5",
                            LAYOUTS.get(layout, ONE), *FP32, *sets, steps=FEW, model_type="bert",
                            hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
                 for sets in (DEVICE, PLAIN))
    assert not violations(ours, cpu, SAME)


def test_a_run_goes_on_on_a_cpu_and_back(run, store, tmp_path):
    """The checkpoints of a narrow device and of a CPU are alike: three parts of a run, each on the
    other kind of device, have the losses of one run on a CPU."""
    def part(name, steps, sets, source=None):
        resume = [f"checkpoint.resume={json.dumps(str(source))}"] if source else []
        train(run, write_run(tmp_path, store, name=name), *FP32, *PLAIN, *sets, *resume,
              "run.steps=9", f"run.stop_after={steps}")
        return curve(tmp_path / name), step_dir(tmp_path / name, steps)

    whole, _ = part("whole", 9, [])
    first, saved = part("first", 3, DEVICE)
    second, saved = part("second", 6, [], saved)
    third, _ = part("third", 9, DEVICE, saved)
    assert relative([p[0] for p in first + second + third], [p[0] for p in whole]) < 1e-6


def test_a_mixture_is_refused_on_a_narrow_device(run, store, tmp_path):
    refused = train(run, write_run(tmp_path, store, model_type="mixtral"), *FP32, *DEVICE, check=False)
    assert refused.returncode == 78
    assert "compiles each shape of an operation" in refused.stderr


def test_an_operation_that_runs_on_the_cpu_ends_the_run_by_name_or_is_warned_of(run, store, tmp_path,
                                                                              monkeypatch):
    # No verb is known to need it, so that only the step shows that it is missing.
    monkeypatch.setenv("SOFTDEV_WITHOUT", "aten::sigmoid")
    refused = train(run, write_run(tmp_path, store), *FP32, *DEVICE, "run.steps=3", check=False)
    assert refused.returncode == 78
    assert "operations ran on the CPU" in refused.stderr and "aten::sigmoid" in refused.stderr
    warned = train(run, write_run(tmp_path, store, name="warned"), *FP32, *DEVICE, "run.steps=3",
                   'run.device_fallback="warn"')
    said = warned.stdout + warned.stderr
    assert "warning: operations ran on the CPU" in said and "aten::sigmoid" in said
    assert len(curve(tmp_path / "warned")) == 3
