"""longhaul drill: faults into a small run on this machine, told in a table."""

import json
import os
import pathlib
import subprocess

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def drill(binary, *arguments):
    return subprocess.run([binary("longhaul"), "drill", *map(str, arguments)], text=True,
                          capture_output=True, timeout=280, env=ENVIRONMENT)


def test_a_killed_rank_and_a_damaged_checkpoint_are_survived_bit_for_bit(binary, tmp_path):
    done = drill(binary, "--dir", tmp_path / "drill", "--steps", 30, "--json",
                 "--faults", "kill-worker,damage-checkpoint,kill-supervisor")
    assert done.returncode == 0, done.stdout + done.stderr
    results = {result["fault"]: result for result in json.loads(done.stdout)}
    assert len(results) == 3
    for result in results.values():
        assert result["survived"] and result["same_losses"], result
        assert result["steps_redone"] >= 0 and result["seconds_to_next_step"] > 0, result
    # The newest of the checkpoints, one in five steps, is not to be used.
    assert results["damage-checkpoint"]["steps_redone"] >= 5
    assert "rank" in results["kill-worker"]["cause"]


def test_an_unknown_fault_is_refused_by_name(binary, tmp_path):
    done = drill(binary, "--dir", tmp_path / "drill", "--faults", "kill-everything")
    assert done.returncode == 78
    assert "kill-worker, kill-workers" in done.stderr
    assert not pathlib.Path(tmp_path / "drill").exists()
