"""A supervised run on several nodes whose devices are the stand-in of AWS's native backend."""

import json
import os
import re
import sys

import pytest
from faults import PACE, sets
from machines import arguments_of, kill_process, wait_until
from programs import BIN
from runs import curve, write_config

STANDIN = BIN.parent / "neuron"
FP32 = ['precision.compute="fp32"', 'precision.gradients="fp32"', "run.fused=false", "parallel.tp=2",
        "parallel.zero=1"]


def test_a_job_compiles_first_trains_and_survives_a_kill_with_the_losses_of_a_cpu(
        cluster, binary, run, folder):
    config = write_config(folder)
    device = ['run.device="neuron"', f"run.neuron_python={json.dumps(sys.executable)}",
              'run.compile_cache="only"', f"run.compile_cache_dir={json.dumps(str(folder / 'kernels'))}"]
    environment = cluster.environment() | {
        "PYTHONPATH": str(STANDIN), "PATH": f"{STANDIN / 'bin'}:{os.environ['PATH']}",
        "NEURON_STANDIN_STRICT": "1", "NEURON_STANDIN_CORES": "2",
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": "/tmp/locks"}
    environment["SBATCH_EXPORT"] = ",".join(environment)
    (folder / "kernels").mkdir()
    done = cluster.call(binary("longhaul"), "submit", config, "--nodes", 2, "--ranks-per-node", 2,
                        "--compile-first", *sets(*device, *FP32, PACE, "run.steps=24"), cwd=folder,
                        env=environment)
    job = cluster.note_job(re.match(r"job (\d+): ", done.stdout)[1])
    log = folder / "run" / f"slurm-{job}.log"

    def said():
        return log.read_text(errors="replace") if log.exists() else ""

    def steps():
        metrics = folder / "run" / "metrics.jsonl"
        return len(curve(folder / "run")) if metrics.exists() else 0

    def trains():
        assert cluster.job_state(job) in ("PENDING", "CONFIGURING", "RUNNING"), said()
        return steps() > 9

    wait_until(trains, 300, said)
    assert re.search(r"compiled: \d\d+ keys", said())
    rank = next(int(pid) for pid in os.listdir("/proc") if pid.isdigit()
                and "--attempt-file" not in arguments_of(pid)
                and re.search(r"longhaul\S* train ", " ".join(arguments_of(pid))))
    kill_process(rank)
    state = cluster.wait_for_job(job, ["COMPLETED", "FAILED", "CANCELLED"], 600)["JobState"]
    assert state == "COMPLETED", said()
    assert "start 2" in said() or "attempt 2" in (folder / "run" / "log.txt").read_text()
    alone = write_config(folder, name="alone")
    run("longhaul", "train", alone, *sets(*FP32, "run.steps=24"), ranks=4)
    ours, cpu = curve(folder / "run"), curve(folder / "alone")
    assert len(ours) == 24
    for mine, theirs in zip(ours, cpu):
        assert mine[0] == pytest.approx(theirs[0], rel=1e-5)
