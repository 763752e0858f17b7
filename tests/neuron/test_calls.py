"""The commands that tools/neuron runs in the first hour on a Trainium, tried on the stand-in."""

import os
import subprocess

import pytest
from programs import BIN, SOURCE, later

CALLS = SOURCE / "tools" / "neuron"
STANDIN = BIN.parent / "neuron"


def call(script, out, *steps, **environment):
    return subprocess.run([CALLS / script, *steps], capture_output=True, text=True, timeout=400, env={
        **os.environ, "OUT": str(out), "BIN": str(BIN), "PYTHON": str(STANDIN / "bin/python3"),
        "RANKS": "2", "SHAPE": "tiny", "NEURON_STANDIN_STRICT": "1", "NEURON_STANDIN_NO_FORK": "1",
        **environment})


def rows(out, script):
    lines = (out / script.replace(".sh", ".table")).read_text().splitlines()
    return {line[:28].strip(): line[29:38].strip() for line in lines}


@pytest.mark.parametrize("script,steps", [
    ("1_look.sh", ["machine", "version", "environment", "network", "doctor"]),
    ("2_one_rank.sh", ["fp32", "fp32-times"]),
    *later(("2_one_rank.sh", ["bf16", "bf16-times", "shapes", "resume"])),
    *later(("3_several.sh", ["tp2", "pp2", "zero3", "cp2", "twice", "stopped", "save"])),
    *later(("4_speed.sh", ["short"])),
])
def test_a_call_runs_its_steps_and_ends_with_a_table(tmp_path, script, steps):
    result = call(script, tmp_path, *steps)
    assert result.returncode == 0, result.stdout + result.stderr
    assert rows(tmp_path, script) == {step: "ok" for step in steps}


def test_an_operation_on_the_cpu_fails_the_step_by_name(tmp_path):
    result = call("2_one_rank.sh", tmp_path, "fp32", NEURON_STANDIN_WITHOUT="sigmoid")
    assert result.returncode == 1
    assert rows(tmp_path, "2_one_rank.sh") == {"fp32": "FAILED"}
    assert "sigmoid" in (tmp_path / "2_one_rank.fp32.log").read_text()
