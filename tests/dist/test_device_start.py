"""What ranks with devices refuse before the first step, and what is left where a device is lost. A
device in host memory plays the devices."""

import subprocess

import pytest
from layouts import FP32, LAYOUTS, curve, train, write_run
from programs import BIN, command_of, later

DEVICE = ['run.device="plugin"',
          f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"', *FP32]
STEPS = 6
SAVED = 2


def keys_of(name, *more):
    return [*LAYOUTS[name][1], *DEVICE, f"run.steps={STEPS}", f"checkpoint.every={SAVED}", *more]


def contents(path):
    return {file.relative_to(path): file.read_bytes()
            for file in (path / "run/checkpoints").rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def begun(run, store, tmp_path_factory):
    """A run with a checkpoint, stopped there: its directory and its configuration."""
    path = tmp_path_factory.mktemp("begun")
    config = write_run(path, store)
    train(run, config, *keys_of("zero1", f"run.stop_after={SAVED}"), ranks=2)
    return path, config


def test_ranks_whose_nccl_settings_differ_are_refused_by_name(begun):
    path, config = begun
    saved = contents(path)
    words, environment = command_of(
        "longhaul", ["train", config, *[w for key in keys_of("zero1") for w in ("--set", key)]],
        ranks=2, nodes=["a", "b"])
    for name, algorithm in [("a", "Ring"), ("b", "Tree")]:
        words[words.index(f"LONGHAUL_NODE_NAME={name}")] = f"NCCL_ALGO={algorithm}"
    refused = subprocess.run(words, env={**environment, "OMP_NUM_THREADS": "1"}, text=True,
                             capture_output=True, timeout=200)
    assert refused.returncode == 78
    assert 'NCCL_ALGO is "Ring" on rank 0, and "Tree" on rank 1; set them alike' in refused.stderr
    assert contents(path) == saved


def test_a_fabrics_plug_in_that_is_missing_is_refused_on_several_machines(run, begun, monkeypatch):
    path, config = begun
    saved = contents(path)
    monkeypatch.setenv("NCCL_NET_PLUGIN", "nowhere")
    refused = train(run, config, *keys_of("zero1"), ranks=2, nodes=2, check=False)
    assert refused.returncode == 78
    assert "NCCL_NET_PLUGIN=nowhere names a plug-in of NCCL that cannot be loaded" in refused.stderr
    assert contents(path) == saved


@pytest.mark.parametrize("name", ["zero1", *later("pp2", "zero3", "cp2_ring", "tp2_sequence")])
def test_each_thread_of_a_rank_has_its_device_before_it_uses_one(run, store, tmp_path, monkeypatch, name):
    """Where there are several devices, the device refuses a thread that has chosen none. Savers have
    threads of their own."""
    monkeypatch.setenv("SOFTDEV_COUNT", "2")
    train(run, write_run(tmp_path, store), *keys_of(name), ranks=LAYOUTS[name][0])
    assert sorted(folder.name for folder in (tmp_path / "run/checkpoints").glob("step_*"))[-1] \
        == f"step_{STEPS:08}"


def test_a_device_that_is_lost_in_a_step_ends_the_run_and_leaves_its_checkpoint(run, store, begun, tmp_path,
                                                                               monkeypatch):
    path, config = begun
    saved = contents(path)
    monkeypatch.setenv("SOFTDEV_FAULT", "lost_device:1200")
    lost = train(run, config, *keys_of("zero1"), ranks=2, check=False)
    assert lost.returncode == 75
    assert "[device] this rank's GPU is lost (CUDA error: uncorrectable ECC" in lost.stderr
    assert SAVED < len(curve(path / "run")) < STEPS
    assert saved.items() <= contents(path).items()
    monkeypatch.delenv("SOFTDEV_FAULT")
    train(run, config, *keys_of("zero1"), ranks=2)
    train(run, write_run(tmp_path, store), *keys_of("zero1"), ranks=2)
    assert curve(path / "run") == curve(tmp_path / "run")
