"""Which of the checkpoints a start takes, and that asynchronous saving changes no result."""

import json
import shutil
import subprocess
import time

import pytest
from programs import later
from runs import curve, state, steps_of, tensors, write_config


def train(run, path, *sets, ranks=1, check=True):
    return run("longhaul", "train", path, *[w for s in sets for w in ("--set", s)],
               ranks=ranks, check=check)


def steps_kept(run_dir):
    return sorted(p.name for p in (run_dir / "checkpoints").glob("step_*"))


def events(run_dir, kind):
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_saving_while_training_goes_on_changes_no_bit(run, tmp_path):
    one, other = write_config(tmp_path, "one"), write_config(tmp_path, "other")
    train(run, one, "checkpoint.every=1")
    train(run, other, "checkpoint.every=1", "checkpoint.async=false", "checkpoint.read_back=false")
    assert curve(tmp_path / "one") == curve(tmp_path / "other")
    assert steps_kept(tmp_path / "one") == [f"step_{n:08}" for n in range(1, 9)]
    for name in steps_kept(tmp_path / "one"):
        mine, theirs = (tmp_path / d / "checkpoints" / name for d in ("one", "other"))
        assert tensors(mine) == tensors(theirs)
        assert state(mine) == state(theirs)


def test_milestones_stay_and_others_go(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "checkpoint.every=1", "checkpoint.keep=2", "checkpoint.milestone_every=3")
    assert steps_kept(tmp_path / "run") == [f"step_{n:08}" for n in (3, 6, 7, 8)]


@pytest.mark.soak
def test_milestones_are_saved_where_no_other_save_falls_on_them(run, tmp_path):
    path, clock = write_config(tmp_path, "run"), write_config(tmp_path, "clock")
    milestones = ("checkpoint.every=0", "checkpoint.keep=1", "checkpoint.milestone_every=3")
    train(run, path, *milestones)
    assert steps_kept(tmp_path / "run") == [f"step_{n:08}" for n in (3, 6, 8)]
    # The clock asks for a save after each step, and all ranks save the same steps.
    train(run, clock, *milestones, "checkpoint.every_minutes=1e-9", "run.stop_after=5", ranks=2)
    assert steps_kept(tmp_path / "clock") == [f"step_{n:08}" for n in (3, 5)]
    train(run, clock, *milestones, "checkpoint.every_minutes=1e-9", ranks=2)
    assert steps_kept(tmp_path / "clock") == [f"step_{n:08}" for n in (3, 6, 8)]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_damaged_checkpoint_makes_all_ranks_go_back_together(run, tmp_path, ranks):
    path, whole = write_config(tmp_path, "run"), write_config(tmp_path, "whole")
    train(run, whole, "checkpoint.every=2", ranks=ranks)
    train(run, path, "checkpoint.every=2", "run.stop_after=6", ranks=ranks)
    newest = tmp_path / "run/checkpoints/step_00000006"
    flip_a_bit(newest / f"a1_rank_{ranks - 1:05}.safetensors")
    result = train(run, path, "checkpoint.every=2", ranks=ranks)
    assert "CHECKPOINT DAMAGED" in result.stdout and f"a1_rank_{ranks - 1:05}" in result.stdout
    assert "block 0" in result.stdout and "going back to" in result.stdout
    assert events(tmp_path / "run", "fall_back")[0]["to"] == "step_00000004"
    assert steps_of(tmp_path / "run")[5]["attempt"] == 2
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")
    last = "checkpoints/step_00000008"
    assert tensors(tmp_path / "run" / last) == tensors(tmp_path / "whole" / last)
    assert run("longhaul", "verify", str(newest)).returncode == 0  # saved again


def test_a_checkpoint_that_has_lost_a_shard_leaves_an_event_and_one_never_finished_none(
        run, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "checkpoint.every=2", "run.stop_after=6")
    (tmp_path / "run/checkpoints/step_00000006/a1_rank_00000.safetensors").unlink()
    (tmp_path / "run/checkpoints/step_00000007").mkdir()
    train(run, path, "checkpoint.every=2")
    [event] = events(tmp_path / "run", "fall_back")
    assert (event["from"], event["to"]) == ("step_00000006", "step_00000004")
    assert "a1_rank_00000.safetensors" in event["message"]


@pytest.mark.parametrize("file", [
    "manifest.json", *later("a1_state.json", "a1_rank_00000.json")])
def test_a_step_whose_checkpoint_was_damaged_is_saved_again(run, tmp_path, file):
    path = write_config(tmp_path)
    train(run, path, "checkpoint.every=2", "run.stop_after=6")
    newest = tmp_path / "run/checkpoints/step_00000006"
    flip_a_bit(newest / file)
    result = train(run, path, "checkpoint.every=2")
    assert "step_00000006" in result.stdout
    assert steps_of(tmp_path / "run")[5]["attempt"] == 2
    assert run("longhaul", "verify", newest).returncode == 0
    assert not list(newest.glob("a1_*"))
    aside = newest.with_name("step_00000006.damaged")  # where what it holds cannot be told
    assert aside.exists() == (file == "manifest.json")


def test_a_run_whose_checkpoints_are_all_damaged_stops(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path)
    for step in (tmp_path / "run/checkpoints").glob("step_*"):
        flip_a_bit(step / "a1_rank_00000.safetensors")
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    result = train(run, path, check=False)
    assert result.returncode == 78 and "block 0" in result.stderr
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before
    for step in (tmp_path / "run/checkpoints").glob("step_*"):
        (step / "a1_state.json").unlink()
    result = train(run, path, check=False)
    assert result.returncode == 78
    assert "no checkpoint of this run is whole" in result.stderr and "never" in result.stderr


def test_settings_that_do_not_fit_are_no_damage(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4", "checkpoint.every=2")
    result = train(run, path, "run.seed=99", check=False)
    assert result.returncode == 78 and "run.seed" in result.stderr
    assert "DAMAGED" not in result.stdout
    assert not events(tmp_path / "run", "fall_back")


def test_settings_that_may_change_are_an_event_with_both_values(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4")
    train(run, path, "run.stop_after=6")
    assert not events(tmp_path / "run", "settings_changed")
    train(run, path, "optimizer.lr=2e-3", "checkpoint.every=2")
    (event,) = events(tmp_path / "run", "settings_changed")
    changes = {change["key"]: (change["was"], change["is"]) for change in event["changes"]}
    assert event["step"] == 6 and changes["optimizer.lr"] == ("0.003", "0.002")
    log = (tmp_path / "run/log.txt").read_text()
    assert "changed since the checkpoint: optimizer.lr was 0.003, is 0.002" in log


def test_a_checkpoint_that_made_two_starts_fail_is_set_aside(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "checkpoint.every=2", "run.stop_after=6")
    # Two starts leave such a record if they were killed between loading and the end of a step.
    record = tmp_path / "run/resume.json"
    record.write_text('{"step": 6, "starts": 1}')
    train(run, path, "checkpoint.every=2", "run.stop_after=7")
    assert not record.exists()
    record.write_text('{"step": 7, "starts": 2}')
    result = train(run, path, "checkpoint.every=2")
    assert "set aside" in result.stdout
    assert steps_of(tmp_path / "run")[7]["attempt"] == 3
    assert "step_00000007.failed_starts" in steps_kept(tmp_path / "run")
    assert not record.exists()


def test_a_start_that_is_killed_before_its_first_step_is_counted(run, binary, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4")
    record = tmp_path / "run/resume.json"
    for _ in range(10):  # until the signal comes before the step is done
        with subprocess.Popen([binary("longhaul"), "train", path], stdout=subprocess.DEVNULL) as started:
            deadline = time.monotonic() + 60
            while not record.exists() and started.poll() is None and time.monotonic() < deadline:
                time.sleep(0.0005)
            started.kill()
        if record.exists():
            break
        shutil.rmtree(tmp_path / "run")
        train(run, path, "run.stop_after=4")
    assert json.loads(record.read_text()) == {"starts": 1, "step": 4}
    train(run, path)
    assert not record.exists()


def test_a_rollback_puts_the_newer_checkpoints_out_of_the_way(run, tmp_path):
    path, whole = write_config(tmp_path, "run"), write_config(tmp_path, "whole")
    train(run, whole)
    train(run, path, "checkpoint.every=2")
    result = train(run, path, "checkpoint.resume=4", "run.stop_after=5")
    assert "step_00000006.superseded" in result.stdout
    assert steps_kept(tmp_path / "run") == [
        "step_00000002", "step_00000004", "step_00000005", "step_00000006.superseded",
        "step_00000008.superseded"]
    train(run, path)
    assert steps_of(tmp_path / "run")[6]["attempt"] == 3
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")


def test_a_save_that_cannot_begin_is_told_and_the_next_one_is_made(run, tmp_path):
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=2", "checkpoint.every=1")
    in_the_way = tmp_path / "run/checkpoints/step_00000004"
    in_the_way.write_text("a file where a directory has to be")
    result = train(run, path, "checkpoint.every=1")
    told = [line for line in result.stdout.splitlines() if "CHECKPOINT FAILED" in line]
    assert len(told) == 1 and "step 4 was not saved" in told[0], result.stdout
    assert in_the_way.read_text() == "a file where a directory has to be"
    assert steps_kept(tmp_path / "run")[-1] == "step_00000008"
    assert steps_of(tmp_path / "run")[4]["attempt"] == 2
