"""The commands that tools/gpu runs on a machine with a GPU, tried on this machine's CPU."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from programs import BIN, SOURCE, later

CALLS = SOURCE / "tools" / "gpu"


def call(script, out, *arguments, **environment):
    return subprocess.run(
        [CALLS / script, *arguments], capture_output=True, text=True, timeout=200,
        env={**os.environ, "OUT": str(out), "BIN": str(BIN), "PYTHON": sys.executable,
             **environment})


def rows(out, script):
    lines = (out / script.replace(".sh", ".table")).read_text().splitlines()
    return {line[:28].strip(): line[29:38].strip() for line in lines}


@pytest.mark.parametrize("script,steps", [
    ("1_first_contact.sh", ["libraries", "version", "doctor"]),
    *later(("2_training.sh", ["bf16", "offload", "twice", "resume", "families"])),
    *later(("3_ceilings.sh", ["products", "weight_gradient"])),
    ("4_whole_steps.sh", ["tiny"]),
    *later(("4_whole_steps.sh", ["tiny_lora", "tiny_peft"])),
    ("6_several.sh", ["ep2"]),
    *later(("6_several.sh", ["tp2", "pp2", "zero3", "cp2", "twice", "links", "stopped", "save"])),
])
def test_a_call_runs_its_steps_and_ends_with_a_table(tmp_path, script, steps):
    result = call(script, tmp_path, "--cpu", *steps)
    assert result.returncode == 0, result.stdout + result.stderr
    assert rows(tmp_path, script) == {step: "ok" for step in steps}


@pytest.mark.soak
def test_the_sixth_call_runs_on_a_device_of_each_rank(tmp_path):
    """The device is in host memory here. The ways are those that its library logs as NCCL does."""
    steps = ["links", "tp2", "ep2", "twice", "save"]
    result = call("6_several.sh", tmp_path, *steps, DEVICE="plugin",
                  PLUGIN=str(BIN / "liblonghaul_software_accelerator.so"), SOFTDEV_COUNT="2",
                  SOFTDEV_WAY="NET/Socket/0")
    assert result.returncode == 0, result.stdout + result.stderr
    assert rows(tmp_path, "6_several.sh") == {step: "ok" for step in steps}
    assert "NET/Socket" in result.stdout and "ep expert rows" in result.stdout


def test_the_sixth_call_is_not_for_one_gpu(tmp_path):
    result = call("6_several.sh", tmp_path, "--cpu", RANKS="1")
    assert result.returncode == 2 and "one GPU here" in result.stderr


def test_the_fifth_call_repeats_what_failed_and_tells_of_it(tmp_path):
    wrong = call("4_whole_steps.sh", tmp_path, "--cpu", "tiny", PYTHON="/bin/false")
    assert wrong.returncode == 1
    assert rows(tmp_path, "4_whole_steps.sh") == {"tiny": "FAILED"}
    again = call("5_again.sh", tmp_path, "--cpu")
    assert again.returncode == 0, again.stdout
    assert rows(tmp_path, "5_again.sh")["4_whole_steps.tiny"] == "ok"


@pytest.mark.soak
def test_a_step_that_takes_too_long_is_ended_and_the_next_has_no_time(tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 100\n")
    slow.chmod(0o755)
    result = call("3_ceilings.sh", tmp_path, "--cpu", "products", "copies",
                  PYTHON=str(slow), LIMIT="6")
    assert result.returncode == 1
    assert rows(tmp_path, "3_ceilings.sh") == {"products": "too slow", "copies": "no time"}


def test_without_a_gpu_the_gpu_tests_fail_and_say_why(tmp_path):
    if shutil.which("nvidia-smi"):
        pytest.skip("there may be a GPU here")
    result = subprocess.run([CALLS / "test.sh"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "no GPU here" in result.stderr


def test_the_bundle_fits_what_can_be_carried_and_holds_the_calls(tmp_path):
    out = tmp_path / "bundle"
    result = subprocess.run([CALLS / "pack.sh", BIN.parent, out], capture_output=True,
                            text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    megabytes = int(re.search(r"(\d+) MB", result.stdout)[1])
    assert 1 < megabytes <= 64
    assert (out / "bin" / "longhaul").exists()
    assert (out / "tools" / "gpu" / "6_several.sh").exists()
    assert (out / "tests" / "families.json").exists()
    assert not list(out.glob("lib/libtorch*"))
