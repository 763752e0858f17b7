"""A disk that is full, over quota or broken while training saves or starts."""

import re

import pytest
from faulty_training import TEMPORARY, Whole, break_and_go_on, faults, arguments, resumed_at
from runs import write_config

WORDS = {"ENOSPC": "No space left on device", "EDQUOT": "Disk quota exceeded",
         "EIO": "Input/output error", "ESTALE": "Stale file handle"}


@pytest.fixture(scope="module")
def whole(run, binary, tmp_path_factory):
    return Whole(run, binary, tmp_path_factory.mktemp("whole"), 1, None)


@pytest.mark.parametrize("rule,error", [
    ("op=write:path=rank_00000.safetensors:n=3", "ENOSPC"),
    ("op=rename:path=rank_00000.json:n=2", "EDQUOT"),
    ("op=sync:path=step_00000004:n=4", "EIO"),
], ids=["data", "sidecar", "sync"])
def test_a_save_that_fails_once_is_tried_again(run, binary, tmp_path, whole, rule, error):
    broken, _ = break_and_go_on(run, binary, tmp_path, whole, f"nosync;fail:{rule}:error={error}")
    assert broken.returncode == 0, broken.stderr
    failed = re.findall(r"CHECKPOINT FAILED: .*", broken.stdout)
    assert len(failed) == 1 and WORDS[error] in failed[0], broken.stdout


def test_a_disk_that_stays_full_ends_the_run_as_temporary(run, binary, tmp_path, whole):
    broken, again = break_and_go_on(
        run, binary, tmp_path, whole,
        "nosync;fail:op=write:path=step_00000004:forever=1:error=ENOSPC;"
        "fail:op=write:path=step_00000005:error=ENOSPC;"
        "fail:op=write:path=step_00000006:error=ENOSPC")
    assert broken.returncode == TEMPORARY
    errors = [line for line in broken.stderr.splitlines() if "longhaul: error: " in line]
    assert len(errors) == 1 and WORDS["ENOSPC"] in errors[0], broken.stderr
    assert "earlier checkpoints are untouched" in errors[0]
    assert resumed_at(again.stdout) == 2


def test_a_checkpoint_that_cannot_be_read_is_passed_over_for_the_one_before(run, binary, tmp_path,
                                                                            whole):
    config = write_config(tmp_path, "run")
    run(*arguments(config, "run.stop_after=4"))
    again = run(*arguments(config), env=faults(
        binary, tmp_path / "run",
        "nosync;fail:op=read:path=step_00000004/a1_rank_00000.safetensors:error=EIO"))
    assert "step_00000004" in again.stdout
    assert resumed_at(again.stdout) == 2
    whole.equals(tmp_path / "run")
