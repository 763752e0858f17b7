"""Training that is killed before or after every change of the disk, or whose disk breaks at
any point of a save, goes on bitwise."""

import pytest
from faulty_training import (TEMPORARY, Whole, arguments, break_and_go_on, faults, resumed_at)
from runs import write_config

KILLED = {"one_rank": (1, None, 1), "first_of_two": (2, 0, 3), "second_of_two": (2, 1, 2)}
WORDS = {"ENOSPC": "No space left on device", "EDQUOT": "Disk quota exceeded",
         "EIO": "Input/output error", "ESTALE": "Stale file handle"}
POINTS = {
    "data_create": "op=create:path=rank_00000.safetensors:n=2",
    "data_write": "op=write:path=rank_00000.safetensors:n=4",
    "data_sync": "op=sync:path=rank_00000.safetensors:n=2",
    "data_close": "op=close:path=rank_00000.safetensors:n=3",
    "sidecar_write": "op=write:path=rank_00000.json:n=2",
    "sidecar_rename": "op=rename:path=rank_00000.json:n=2",
    "config_write": "op=write:path=hf/config.json:n=2",
    "state_write": "op=write:path=state.json:n=2",
    "manifest_write": "op=write:path=manifest:n=2",
    "manifest_link": "op=link:path=manifest:n=2",
    "directory_make": "op=mkdir:path=step_0000000:n=3",
    "directory_sync": "op=sync:path=step_00000004:n=6",
    "read_back": "op=read:path=rank_00000.safetensors:n=2",
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", KILLED)
def test_a_run_killed_at_any_change_goes_on_bitwise(run, binary, tmp_path, case, when):
    ranks, rank, stride = KILLED[case]
    whole = Whole(run, binary, tmp_path, ranks, rank)
    assert whole.changes > 30
    killed = 0
    for n in range(1, whole.changes + 1, stride):
        directory = tmp_path / str(n)
        directory.mkdir()
        broken, _ = break_and_go_on(run, binary, directory, whole,
                                    f"nosync;kill:when={when}:n={n}")
        killed += broken.returncode != 0
    # The number of calls depends a little on the timing of threads.
    assert killed >= 0.8 * whole.changes / stride


@pytest.fixture(scope="module", params=["true", "false"], ids=["async", "sync"])
def whole(request, run, binary, tmp_path_factory):
    return Whole(run, binary, tmp_path_factory.mktemp("whole"), 1, None,
                 f"checkpoint.async={request.param}")


@pytest.mark.parametrize("error", WORDS)
@pytest.mark.parametrize("point", POINTS)
def test_a_save_that_fails_at_any_point_is_tried_again(run, binary, tmp_path, whole, point,
                                                       error):
    broken, _ = break_and_go_on(run, binary, tmp_path, whole,
                                f"nosync;fail:{POINTS[point]}:error={error}")
    assert broken.returncode == 0, broken.stderr
    assert WORDS[error] in broken.stdout and "CHECKPOINT FAILED" in broken.stdout


@pytest.mark.parametrize("error", WORDS)
def test_a_disk_that_stays_broken_ends_the_run_as_temporary(run, binary, tmp_path, whole, error):
    broken, again = break_and_go_on(
        run, binary, tmp_path, whole,
        f"nosync;fail:n={whole.changes // 2}:forever=1:error={error}")
    assert broken.returncode == TEMPORARY
    assert WORDS[error] in broken.stderr
    assert resumed_at(again.stdout) in (2, 4)


@pytest.mark.parametrize("rules", ["short:op=write", "slow:op=write:ms=30;slow:op=sync:ms=30"],
                         ids=["short_writes", "slow_disk"])
def test_short_writes_and_a_slow_disk_change_nothing(run, binary, tmp_path, whole, rules):
    broken, _ = break_and_go_on(run, binary, tmp_path, whole, "nosync;" + rules)
    assert broken.returncode == 0
    assert "CHECKPOINT FAILED" not in broken.stdout


def test_what_one_of_two_ranks_cannot_read_is_passed_over_by_both(run, binary, tmp_path):
    whole = Whole(run, binary, tmp_path, 2, 1)
    config = write_config(tmp_path, "run")
    run(*arguments(config, "run.stop_after=4"), ranks=2)
    again = run(*arguments(config), ranks=2, env=faults(
        binary, tmp_path / "run", "nosync;fail:op=read:path=step_00000004/:error=EIO", rank=1))
    assert resumed_at(again.stdout) == 2
    whole.equals(tmp_path / "run")
