"""A disk that is full, over quota or broken while training saves or starts."""

import json
import re

import pytest
from faulty_training import (TEMPORARY, Whole, arguments, break_and_go_on, faults,
                             last_checkpoint, resumed_at)
from runs import tensors, write_config

WORDS = {"ENOSPC": "No space left on device", "EDQUOT": "Disk quota exceeded",
         "EIO": "Input/output error", "ESTALE": "Stale file handle",
         "EROFS": "Read-only file system", "ENOTCONN": "Transport endpoint is not connected",
         "ESHUTDOWN": "Cannot send after transport endpoint shutdown",
         "EPROTO": "Protocol error"}


@pytest.fixture(scope="module")
def whole(run, binary, tmp_path_factory):
    return Whole(run, binary, tmp_path_factory.mktemp("whole"), 1, None)


@pytest.mark.parametrize("rule,error", [
    ("op=write:path=rank_00000.safetensors:n=3", "ENOSPC"),
    ("op=rename:path=rank_00000.json:n=2", "EDQUOT"),
    ("op=sync:path=step_00000004:n=4", "EIO"),
    ("op=mkdir:path=step_00000004:n=1", "EROFS"),
    ("op=mkdir:path=step_00000002:n=1", "ESHUTDOWN"),
    ("op=create:path=step_00000004:n=2", "EPROTO"),  # one that nobody has thought of
], ids=["data", "sidecar", "sync", "evicted", "shutdown", "unknown"])
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


def test_what_is_wrong_before_the_first_step_is_an_input(run, binary, tmp_path):
    config = write_config(tmp_path, "run")
    done = run(*arguments(config), check=False, env=faults(
        binary, tmp_path / "run", "fail:op=mkdir:error=EROFS"))
    assert done.returncode == 78 and WORDS["EROFS"] in done.stderr, done.stderr
    assert (tmp_path / "run/metrics.jsonl").read_text() == ""


@pytest.mark.parametrize("rule,words", [
    ("op=rename:error=ENOSYS", "cannot rename a file (Function not implemented)"),
    ("op=sync:error=EINVAL", "cannot sync a file (fsync) (Invalid argument)"),
    ("op=sync:n=2:error=EOPNOTSUPP", "cannot sync a directory (fsync) (Operation not supported)"),
], ids=["rename", "file", "directory"])
def test_a_file_system_that_cannot_hold_checkpoints_is_refused_before_the_first_step(
        run, binary, tmp_path, rule, words):
    config = write_config(tmp_path, "run")
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    done = run(*arguments(config), check=False, env=faults(
        binary, tmp_path / "run", f"fail:{rule}:path=probe"
        if "rename" in rule else f"fail:{rule}"))
    assert done.returncode == 78 and words in done.stderr, done.stderr
    assert "set checkpoint.dir to a local disk" in done.stderr
    assert (tmp_path / "run/metrics.jsonl").read_text() == ""
    assert not list((tmp_path / "run/checkpoints").iterdir())
    assert run(*arguments(config)).returncode == 0


def lacking(binary, run_dir, *rules):
    """Returns the environment of a file system under a whole run that lacks something."""
    environment = faults(binary, run_dir, ";".join(("nosync", *rules)))
    return environment | {"LONGHAUL_FAULT_DIR": str(run_dir)}


@pytest.mark.parametrize("rules", [
    ["fail:op=share:error=ENODEV"],
    ["fail:op=map:error=ENODEV"],
    ["fail:op=link:error=EPERM"],
    ["fail:op=exclusive:error=EINVAL"],
], ids=["no-shared-mappings", "no-mappings", "no-hard-links", "no-exclusive-renames"])
def test_a_file_system_without_mappings_or_hard_links_holds_a_run(run, binary, tmp_path, whole,
                                                                 rules):
    config = write_config(tmp_path, "run")
    environment = lacking(binary, tmp_path / "run", *rules)
    run(*arguments(config, "run.stop_after=4"), env=environment)
    again = run(*arguments(config), env=environment)
    assert resumed_at(again.stdout) == 4
    whole.equals(tmp_path / "run")
    run("longhaul", "verify", tmp_path / "run", env=environment)


@pytest.mark.parametrize("rules,words", [
    (["fail:op=link:error=EPERM", "fail:op=exclusive:error=EINVAL"],
     "neither hard links nor renames that replace nothing"),
    (["fail:op=sync:error=EINVAL"],
     "fsync failed: Invalid argument; its file system cannot sync this"),
], ids=["one-winner", "sync"])
def test_a_file_system_that_cannot_hold_a_run_is_refused_by_what_it_lacks(run, binary, tmp_path,
                                                                         rules, words):
    config = write_config(tmp_path, "run")
    done = run(*arguments(config), check=False, env=lacking(binary, tmp_path / "run", *rules))
    assert done.returncode == 78 and words in done.stderr, done.stderr
    assert f"{tmp_path}/run" in done.stderr and "choose a place on a local disk" in done.stderr
    assert not list((tmp_path / "run").iterdir())


def test_a_full_disk_under_the_run_directory_costs_lines_and_not_the_run(run, binary, tmp_path,
                                                                        whole):
    config = write_config(tmp_path, "run")
    run_dir = tmp_path / "run"
    # The second line of metrics is cut in its middle, and the third has no room at all.
    environment = faults(binary, run_dir, "nosync;short:op=write:path=metrics.jsonl:n=2;"
                         "fail:op=write:path=metrics.jsonl:n=3:error=ENOSPC;"
                         "fail:op=write:path=metrics.jsonl:n=4:error=ENOSPC;"
                         "short:op=write:path=events.jsonl:n=2;"
                         "fail:op=write:path=events.jsonl:n=3:error=ENOSPC;"
                         "fail:op=write:path=log.txt:n=5:error=ENOSPC;"
                         "fail:op=write:path=tfevents:error=ENOSPC:n=1:forever=1;"
                         "fail:op=create:path=results.json:error=ENOSPC")
    environment["LONGHAUL_FAULT_DIR"] = str(run_dir)
    done = run(*arguments(config, "log.tensorboard=true"), env=environment)
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 4, 5, 6]
    assert all(json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines())
    for words in ("metrics.jsonl cannot be written: No space left on device",
                  "metrics.jsonl is written again; 2 lines are missing there",
                  "events.jsonl is written again; 1 line is missing there",
                  "log.txt is written again; 1 line is missing there",
                  "results.json was not written"):
        assert done.stdout.count(words) == 1, (words, done.stdout)
    assert "1 of this log's lines could not be written here" in (run_dir / "log.txt").read_text()
    assert tensors(last_checkpoint(run_dir)) == whole.tensors


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
