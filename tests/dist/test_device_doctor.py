"""The doctor over the devices of a run, which are in host memory here."""

import json

import pytest
from layouts import write_run
from programs import BIN

DEVICE = ['run.device="plugin"',
          f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"', "batch.micro_size=1"]
EXPERTS = dict(model_type="qwen3_moe")


@pytest.fixture
def examined(run, tmp_path):
    """Runs the doctor on two ranks; returns its checks of ranks together by their names."""

    def call(*sets, **environment):
        path = write_run(tmp_path, "no store", **EXPERTS)
        done = run("longhaul", "doctor", path, "--quick", "--json",
                   *[word for one in (*DEVICE, *sets) for word in ("--set", one)], ranks=2, check=False,
                   env={"OMP_NUM_THREADS": "1", "SOFTDEV_COUNT": "2", **environment})
        assert done.stdout, done.stderr
        report = json.loads(done.stdout)
        assert done.returncode == (0 if report["ok"] else 1), done.stderr
        return {check["name"]: check for check in report["together"]}

    return call


def test_it_tries_the_exchanges_of_the_runs_groups(examined):
    checks = examined("parallel.ep=2", SOFTDEV_WAY="NET/Plugged in/0/GDRDMA")
    for name in ("device ep expert rows", "device dp reduce_scatter"):
        assert "over 2 ranks, 2 on each node: " in checks[name]["text"] and "GB/s" in checks[name]["text"]
        assert checks[name]["values"]["bytes_per_second"] > 0
    assert checks["device sums"]["text"] == "4.2 MB is right over 2 devices"
    assert checks["host time"]["values"]["seconds"] > 0
    assert checks["ways"]["values"]["ways"] == ["NET/Plugged in/GDRDMA"]
    assert checks["numa"]["text"].startswith("ranks 0,1: cores of ")
    assert not [name for name in checks if name.startswith("axis ")]


def test_a_log_that_the_user_wants_elsewhere_is_not_read(examined, tmp_path):
    log = tmp_path / "log"
    checks = examined("parallel.tp=2", NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=str(log))
    assert checks["ways"]["result"] == "skipped"
    assert "via SHM" in log.read_text()
    assert "device tp all_reduce" in checks or "device tp reduce_scatter" in checks


def test_a_layout_that_does_not_fit_the_ranks_fails(examined):
    checks = examined("parallel.tp=3", "parallel.sequence=false")
    assert checks["device groups"]["result"] == "failed"
    assert checks["device sums"]["result"] == "ok"
