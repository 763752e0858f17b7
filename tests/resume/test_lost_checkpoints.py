"""A run that has come to a checkpoint never begins anew by itself, whatever has become of the
directories: a mount that one node has lost looks like an empty directory."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
from programs import later
from runs import PACE, curve, final, steps_of, tensors, write_config

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "dist"), str(HERE.parent / "e2e")]
from test_failures import ENVIRONMENT, finish, rank_pids  # noqa: E402
from test_launch import workers  # noqa: E402

EVERY = "checkpoint.every=2"


def train(run, path, *sets, ranks=1, check=True):
    return run("longhaul", "train", path, *[w for s in sets for w in ("--set", s)],
               ranks=ranks, check=check)


def kept(run_dir):
    return sorted(p.name for p in (run_dir / "checkpoints").glob("step_*"))


def record_of(run_dir):
    return json.loads((run_dir / "run.json").read_text())


def refused(run, path, *sets, code=78, ranks=1):
    """Expects that a start is refused and has changed no record of steps; returns its message."""
    metrics = path.with_suffix("") / "metrics.jsonl"
    before = metrics.read_bytes()
    result = train(run, path, *sets, ranks=ranks, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    assert metrics.read_bytes() == before
    assert "RANDOM" not in result.stdout
    return result.stderr


@contextlib.contextmanager
def begun(words, env, ranks, errors=subprocess.PIPE):
    """Starts a program, which is ended here with its ranks in any case. `ranks` returns the ids of
    its ranks."""
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=errors,
                               text=True, env=env)
    try:
        yield process
    finally:
        # The parent is stopped first, since it would start its ranks again. Once it has ended, the
        # ids may belong to other processes.
        process.send_signal(signal.SIGSTOP)
        for pid in ranks(process) if process.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate(timeout=60)


def wait_until(process, come):
    limit = time.monotonic() + 60
    while not come():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.005)


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory):
    """A run that trains to its end without a fault."""
    path = tmp_path_factory.mktemp("whole")
    train(run, write_config(path), EVERY)
    return path / "run"


def test_a_run_whose_checkpoints_are_gone_is_refused_until_they_are_back(run, tmp_path, whole):
    path = write_config(tmp_path)
    train(run, path, EVERY, "run.stop_after=4")
    checkpoints, away = tmp_path / "run/checkpoints", tmp_path / "away"
    assert record_of(tmp_path / "run")["newest"] == 4
    checkpoints.rename(away)
    checkpoints.mkdir()
    for sets in ([], ["checkpoint.resume=4"]):
        said = refused(run, path, EVERY, *sets)
        assert "step 4" in said and str(checkpoints) in said
        assert 'checkpoint.resume = "never"' in said
    checkpoints.rmdir()
    assert str(checkpoints) in refused(run, path, EVERY, ranks=2)
    away.rename(checkpoints)
    train(run, path, EVERY)
    assert curve(tmp_path / "run") == curve(whole)
    assert tensors(final(tmp_path / "run")) == tensors(final(whole))


def test_never_is_the_one_way_to_begin_anew_and_what_was_there_is_kept(run, tmp_path, whole):
    path = write_config(tmp_path)
    train(run, path, EVERY, "run.stop_after=6", "run.seed=5")
    before = record_of(tmp_path / "run")
    result = train(run, path, EVERY, "checkpoint.resume=never", "run.stop_after=2")
    assert "step_00000006.superseded" in result.stdout
    assert record_of(tmp_path / "run")["run"] != before["run"]
    assert kept(tmp_path / "run") == ["step_00000002", *(
        f"step_0000000{n}.superseded" for n in (2, 4, 6))]
    train(run, path, EVERY)  # goes on from what it did then, not from before
    assert curve(tmp_path / "run") == curve(whole)


def test_a_newest_checkpoint_that_is_missing_is_told_by_name(run, tmp_path, whole):
    path = write_config(tmp_path)
    train(run, path, EVERY, "run.stop_after=6")
    shutil.rmtree(tmp_path / "run/checkpoints/step_00000006")
    result = run("longhaul", "verify", tmp_path / "run", check=False)
    assert result.returncode == 78 and "step_00000006: MISSING" in result.stdout
    result = train(run, path, EVERY)
    assert "CHECKPOINT MISSING" in result.stdout and "step_00000006" in result.stdout
    assert steps_of(tmp_path / "run")[5]["attempt"] == 2
    assert '"fall_back"' in (tmp_path / "run/events.jsonl").read_text()
    assert curve(tmp_path / "run") == curve(whole)


def test_a_run_that_never_came_to_a_checkpoint_begins_anew_and_says_what_it_lost(
        run, binary, tmp_path, whole):
    path = write_config(tmp_path)
    words = [binary("longhaul"), "train", path, "--set", "checkpoint.every=0", "--set", PACE]
    with begun(words, ENVIRONMENT, lambda _: []) as process:
        metrics = tmp_path / "run/metrics.jsonl"
        wait_until(process, lambda: metrics.exists() and steps_of(tmp_path / "run").get(3))
    reached = max(steps_of(tmp_path / "run"))
    result = train(run, path, EVERY)
    assert f"had reached step {reached}, but no checkpoint of it was ever committed" in result.stdout
    assert curve(tmp_path / "run") == curve(whole)


def test_another_directory_for_checkpoints_is_no_reason_to_begin_anew(run, tmp_path, whole):
    path, place = write_config(tmp_path), f'checkpoint.dir="{tmp_path}/new"'
    train(run, path, EVERY, "run.stop_after=4")
    old = tmp_path / "run/checkpoints"
    said = refused(run, path, EVERY, place)
    assert f"{tmp_path}/new" in said and f"checkpoint.dir to {old}" in said
    # The run goes on in its own directory, first from the old one and then from its own
    # checkpoints.
    resume = f'checkpoint.resume="{old}"'
    train(run, path, EVERY, place, resume, "run.stop_after=6")
    result = train(run, path, EVERY, place, resume)
    assert "is not used: this run has checkpoints of its own" in result.stdout
    assert steps_of(tmp_path / "run")[7]["attempt"] == 3  # the refused start is none
    assert curve(tmp_path / "run") == curve(whole)
    assert tensors(tmp_path / "new/step_00000008") == tensors(final(whole))


@pytest.mark.soak
def test_the_checkpoints_of_another_run_are_no_runs_own(run, tmp_path):
    path, other = write_config(tmp_path), write_config(tmp_path, "other")
    train(run, path, EVERY, "run.stop_after=4")
    train(run, other, EVERY, "run.stop_after=2")
    said = refused(run, path, EVERY, f'checkpoint.dir="{tmp_path}/other/checkpoints"')
    assert "of another run" in said and f"{tmp_path}/run/checkpoints" in said
    theirs = f'checkpoint.dir="{tmp_path}/other/checkpoints"'
    assert "of another run" in refused(run, path, EVERY, theirs, "checkpoint.resume=never")
    assert kept(tmp_path / "other") == ["step_00000002"]
    # A run that begins from another run's checkpoint goes on from its own checkpoints, with the
    # same command.
    third = write_config(tmp_path, "third")
    begin = f'checkpoint.resume="{tmp_path}/other"'
    train(run, third, EVERY, begin, "run.stop_after=4")
    train(run, third, EVERY, begin)
    assert [steps_of(tmp_path / "third")[n]["attempt"] for n in (3, 4, 5, 8)] == [1, 1, 2, 2]
    shutil.rmtree(tmp_path / "third/checkpoints")
    assert "step 8" in refused(run, third, EVERY, begin, "run.steps=9")


@pytest.fixture(scope="module")
def stranger(run, tmp_path_factory):
    """A checkpoint of step 6 of a run with the same seed, and its directory of checkpoints."""
    path = tmp_path_factory.mktemp("stranger")
    train(run, write_config(path), EVERY, "run.stop_after=6")
    return path / "run/checkpoints/step_00000006"


def put(stranger, run_dir):
    there = run_dir / "checkpoints" / stranger.name
    shutil.copytree(stranger, there)
    return there


def test_another_runs_checkpoint_is_named_and_neither_taken_nor_deleted(
        run, tmp_path, whole, stranger):
    path, run_dir = write_config(tmp_path), tmp_path / "run"
    train(run, path, EVERY, "run.stop_after=4")
    theirs = record_of(stranger.parent.parent)["run"]
    there = put(stranger, run_dir)
    for verb in ("verify", "inspect"):
        result = run("longhaul", verb, run_dir, check=False)
        assert result.returncode == 78 and f"run {theirs} saved it" in result.stdout, verb
    said = run("longhaul", "watch", run_dir, "--once").stdout
    assert "step 6 is not whole: it was saved by another run" in said
    result = run("longhaul", "export", run_dir, "--out", tmp_path / "hf")
    assert f"run {theirs} saved it" in result.stderr + result.stdout
    assert "step_00000004" in result.stderr + result.stdout
    result = train(run, path, EVERY, "checkpoint.keep=1", "run.stop_after=5")
    assert f"step_00000006 passed over: {there}: run {theirs} saved it" in result.stdout
    assert steps_of(run_dir)[5]["attempt"] == 2
    assert kept(run_dir) == ["step_00000005", "step_00000006"]
    # The run's own step 6 takes the name of the other run's directory, which is renamed.
    result = train(run, path, EVERY, "checkpoint.keep=1")
    assert "step_00000006.of_another_run" in result.stdout
    assert kept(run_dir) == ["step_00000006.of_another_run", "step_00000008"]
    assert curve(run_dir) == curve(whole)
    assert tensors(final(run_dir)) == tensors(final(whole))


def test_another_runs_checkpoint_alone_is_taken_only_by_its_path(run, tmp_path, whole, stranger):
    path, run_dir = write_config(tmp_path), tmp_path / "run"
    there = put(stranger, run_dir)
    begin = f'checkpoint.resume="{there}"'
    for sets in ([], ["checkpoint.resume=6"]):
        result = train(run, path, EVERY, *sets, check=False)
        assert result.returncode == 78 and "RANDOM" not in result.stdout
        assert begin.replace("=", " = ", 1) in result.stderr
    train(run, path, EVERY, begin, "run.stop_after=7")
    result = train(run, path, EVERY, begin)  # it goes on from its own, by the same command
    assert "is not used: this run has checkpoints of its own" in result.stdout
    # Starts that were refused do not count as attempts.
    assert [steps_of(run_dir)[n]["attempt"] for n in (7, 8)] == [1, 2]
    assert kept(run_dir) == ["step_00000006", "step_00000007", "step_00000008"]
    assert tensors(final(run_dir)) == tensors(final(whole))
    # When the run's own checkpoints are gone, the run neither goes on from the other run's
    # checkpoint nor begins anew.
    for step in ("step_00000007", "step_00000008"):
        shutil.rmtree(run_dir / "checkpoints" / step)
    said = refused(run, path, EVERY, "run.steps=9")
    assert "step 8" in said and "of other runs there: step_00000006" in said


def test_two_runs_do_not_share_a_directory_of_checkpoints(run, tmp_path, stranger):
    """The second run has not lost its own directory: the checkpoints belong to the first run."""
    path = write_config(tmp_path, "second")
    shutil.copytree(stranger.parent, tmp_path / "second/checkpoints")
    result = train(run, path, EVERY, check=False)
    assert result.returncode == 78 and str(stranger.parent.parent) in result.stderr
    assert not (tmp_path / "second/metrics.jsonl").exists() or not steps_of(tmp_path / "second")


def test_a_run_that_has_lost_what_it_knows_says_what_is_there(run, tmp_path, whole):
    path, run_dir = write_config(tmp_path), tmp_path / "run"
    train(run, path, EVERY, "run.stop_after=6")
    for name in ("run.json", "events.jsonl"):
        (run_dir / name).unlink()
    (run_dir / "checkpoints").rename(tmp_path / "away")
    for _ in range(2):  # the first refusal has made a record
        said = refused(run, path, EVERY)
        assert "has steps up to 6, and neither run.json nor events.jsonl" in said
    (tmp_path / "away").rename(run_dir / "checkpoints")
    shutil.rmtree(run_dir / "checkpoints/step_00000006")
    result = train(run, path, EVERY)
    assert "has steps up to 6" in result.stdout and "is of step 4" in result.stdout
    assert curve(run_dir) == curve(whole)


def test_a_run_of_an_older_release_goes_on_and_is_marked(run, tmp_path, whole):
    path = write_config(tmp_path)
    train(run, path, EVERY, "run.stop_after=4")
    (tmp_path / "run/run.json").unlink()
    (tmp_path / "run/checkpoints/of_run.json").unlink()
    train(run, path, EVERY, "run.stop_after=6")
    owner = json.loads((tmp_path / "run/checkpoints/of_run.json").read_text())
    assert owner["run"] == record_of(tmp_path / "run")["run"]
    (tmp_path / "run/run.json").unlink()
    train(run, path, EVERY)  # its own directory was lost: the checkpoints say who it is
    assert owner["run"] == record_of(tmp_path / "run")["run"]
    assert curve(tmp_path / "run") == curve(whole)
    # Checkpoints that only events tell of must not have vanished either.
    (tmp_path / "run/run.json").unlink()
    shutil.rmtree(tmp_path / "run/checkpoints")
    assert "step 8" in refused(run, path, EVERY, "run.steps=9")


# Two ranks act as if they were on two machines with different mounts and host names.
def on_two_nodes(binary, path, hides, odd):
    """Starts two ranks; rank `odd` finds an empty directory in place of `hides`."""
    command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for rank in range(2):
        empty = path.parent / f"empty{rank}"
        empty.mkdir(exist_ok=True)
        hide = f"mount --bind {empty} {hides} && " if rank == odd else ""
        command += [":"] if rank > 0 else []
        command += ["-n", "1", "unshare", "--mount", "--uts", "sh", "-c",
                    f'{hide}hostname n{rank} && exec "$0" "$@"', binary("longhaul"), "train",
                    str(path), "--set", EVERY]
    with begun(command, ENVIRONMENT, lambda p: rank_pids(p.pid).values()) as process:
        code, errors = finish(process)
    return code, "\n".join(errors)


@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True).returncode != 0,
    reason="needs namespaces of its own")
@pytest.mark.parametrize("what,odd", [
    ("run", 1), ("run/checkpoints", 0), *later(("run", 0), ("run/checkpoints", 1))])
def test_the_rank_that_sees_another_directory_is_named_and_the_run_may_go_on(
        run, binary, tmp_path, what, odd):
    path = write_config(tmp_path)
    train(run, path, EVERY, "run.stop_after=4", ranks=2)
    metrics = (tmp_path / "run/metrics.jsonl").read_bytes()
    code, said = on_two_nodes(binary, path, tmp_path / what, odd)
    assert code == 75, said
    assert f"rank {odd} of 2 on n{odd}" in said and f"on n{1 - odd}" in said
    assert str(tmp_path / what) in said
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == metrics
    assert kept(tmp_path / "run") == ["step_00000002", "step_00000004"]


def supervised(binary, path, *sets):
    words = [binary("longhaul"), "launch", "-n", "2", path, "--set", EVERY, "--set", PACE]
    words += [w for s in sets for w in ("--set", s)]
    return begun(words, ENVIRONMENT, lambda _: workers(path), subprocess.STDOUT)


def has_saved(run_dir):
    events = run_dir / "events.jsonl"
    return events.exists() and '"checkpoint"' in events.read_text()


# "never" is meant for the first start. A restart must not read it as a permission to begin anew.
@pytest.mark.parametrize("resume", ["never", *later("latest")])
def test_a_supervised_run_that_loses_its_checkpoints_ends_and_trains_nothing_again(
        run, binary, tmp_path, resume):
    path, steps = write_config(tmp_path), "run.steps=60"
    with supervised(binary, path, steps, f"checkpoint.resume={resume}") as process:
        wait_until(process, lambda: has_saved(tmp_path / "run"))
        pids = workers(path)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        (tmp_path / "run/checkpoints").rename(tmp_path / "away")
        (tmp_path / "run/checkpoints").mkdir()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 78, said
    assert "no rank finds a checkpoint" in said
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    assert [r["step"] for r in records if "grad_norm" in r].count(1) == 1
    assert not kept(tmp_path / "run")


@pytest.mark.soak
def test_memory_of_the_machines_outlives_the_checkpoints(run, binary, tmp_path):
    path = write_config(tmp_path)
    memory = {**ENVIRONMENT, "LONGHAUL_MEMORY_DIR": str(tmp_path / "memory")}
    (tmp_path / "memory").mkdir(mode=0o700)
    words = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", binary("longhaul"),
             "train", path, "--set", "run.steps=30", "--set", "checkpoint.every=4", "--set",
             "resilience.peer_memory_every=1"]

    def of_mpirun(process):
        return rank_pids(process.pid).values()

    with begun([*words, "--set", PACE], memory, of_mpirun) as process:
        wait_until(process, lambda: (tmp_path / "run/metrics.jsonl").exists() and max(
            steps_of(tmp_path / "run"), default=0) >= 7)
    shutil.rmtree(tmp_path / "run/checkpoints")
    with begun(words, memory, of_mpirun) as process:
        code, said = finish(process)
    assert code == 0, said
    log = (tmp_path / "run/log.txt").read_text()
    assert "CHECKPOINTS GONE" in log and "in memory of 1 node (checkpoint on disk: none)" in log
    assert log.count("weights: RANDOM") == 1
    assert record_of(tmp_path / "run")["newest"] == 30


def without_checkpoints(binary, path, *sets):
    """Trains, and removes the directory of checkpoints while training goes on."""
    words = [binary("longhaul"), "train", path, "--set", PACE]
    words += [w for s in sets for w in ("--set", s)]
    with begun(words, ENVIRONMENT, lambda _: [], subprocess.STDOUT) as process:
        wait_until(process, lambda: has_saved(path.with_suffix("")))
        (path.with_suffix("") / "checkpoints").rename(path.parent / "away")
        said, _ = process.communicate(timeout=120)
    return process.returncode, said


def test_what_is_in_memory_is_saved_when_the_directory_is_removed_under_the_run(
        run, binary, tmp_path):
    path, sets = write_config(tmp_path), ["run.steps=40", "checkpoint.every=15"]
    code, said = without_checkpoints(binary, path, *sets)
    assert code == 0 and "CHECKPOINTS GONE" in said
    assert kept(tmp_path / "run")[-1] == "step_00000040"
    assert record_of(tmp_path / "run")["newest"] == 40
    train(run, path, *sets)  # it is the run's own directory again, and the run is done
    assert steps_of(tmp_path / "run")[1]["attempt"] == 1


def test_a_run_that_is_to_go_back_to_a_checkpoint_that_is_gone_does_not_begin_anew(
        binary, tmp_path):
    path = write_config(tmp_path)
    code, said = without_checkpoints(
        binary, path, "run.steps=60", "checkpoint.every=25", "resilience.on_bad_step=rollback",
        "resilience.rollback_steps=2", 'debug.faults=[{step = 45, kind = "nonfinite_loss"}]')
    assert code == 75, said
    assert "the run has to go back" in said and str(tmp_path / "run/checkpoints") in said
    assert said.count("RANDOM") == 1


# This script stands in for scontrol: it keeps the comment of its only job in a file beside itself.
SCONTROL = """#!/bin/sh
comment=$(dirname "$0")/comment
case $1 in
  show) echo "JobId=7 JobName=x"; echo "   Comment=$(cat "$comment" 2>/dev/null)" ;;
  update) echo "${3#Comment=}" > "$comment" ;;
esac
"""


def test_a_requeued_start_begins_no_run_that_an_earlier_start_of_the_job_has_trained(
        binary, tmp_path):
    """Without a supervisor, Slurm's record of the job shows that a run has begun, which the empty
    directory does not."""
    path = write_config(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text(SCONTROL)
    (tools / "scontrol").chmod(0o755)
    slurm = {**os.environ, "SLURM_JOB_ID": "7", "PATH": f"{tools}:{os.environ['PATH']}"}

    def life(number, *sets):
        words = [w for s in sets for w in ("--set", s)]
        return subprocess.run([binary("longhaul"), "train", path, *words], text=True,
                              capture_output=True, timeout=120,
                              env={**slurm, "SLURM_RESTART_COUNT": str(number)})

    # The job was requeued before a first start came so far, so the run begins.
    first = life(1, "run.stop_after=2", EVERY)
    assert first.returncode == 0 and "RANDOM" in first.stdout, first.stderr
    run_dir = tmp_path / "run"
    run_dir.rename(tmp_path / "mounted")
    for sets in ([], ['checkpoint.resume="never"']):
        lost = life(2, "run.stop_after=4", EVERY, *sets)
        assert lost.returncode == 75 and "RANDOM" not in lost.stdout, lost.stdout
        assert f"trained run {record_of(tmp_path / 'mounted')['run']} in {run_dir}" in lost.stderr
    shutil.rmtree(run_dir)
    (tmp_path / "mounted").rename(run_dir)
    again = life(3, "run.stop_after=4", EVERY)
    assert again.returncode == 0 and "RANDOM" not in again.stdout, again.stderr
    # The run's own directory is gone for good, but its checkpoints lie elsewhere, so it goes on.
    (run_dir / "checkpoints").rename(tmp_path / "kept")
    shutil.rmtree(run_dir)
    moved = life(4, "run.stop_after=6", EVERY, f"checkpoint.dir='{tmp_path}/kept'")
    assert moved.returncode == 0 and "RANDOM" not in moved.stdout, moved.stderr
    assert min(steps_of(run_dir)) == 5
    # Another job begins anew, and so does a job without a record.
    shutil.rmtree(run_dir)
    (tools / "comment").unlink()
    assert "RANDOM" in life(0, "run.stop_after=2").stdout


def test_a_start_whose_lock_another_one_has_taken_writes_no_further_step(binary, tmp_path):
    """Somebody has removed run.lock, so a second start could take the lock."""
    path = write_config(tmp_path)
    run_dir = tmp_path / "run"
    words = [binary("longhaul"), "train", path, "--set", PACE, "--set", "run.steps=5000",
             "--set", "checkpoint.every=1000"]
    with begun(words, dict(os.environ), lambda process: []) as one:
        wait_until(one, lambda: steps_by_attempt(run_dir).get(1, 0) > 3)
        (run_dir / "run.lock").unlink()
        before = steps_by_attempt(run_dir)[1]
        wait_until(one, lambda: steps_by_attempt(run_dir)[1] > before + 1)  # nobody else has it
        with begun(words, dict(os.environ), lambda process: []) as two:
            output, errors = one.communicate(timeout=60)
            assert one.returncode == 1 and "no longer owns the run" in errors, errors
            wait_until(two, lambda: steps_by_attempt(run_dir).get(2, 0) > 3)
    records = lines_of_metrics(run_dir)
    first = max(i for i, record in enumerate(records) if record["attempt"] == 1)
    second = min(i for i, record in enumerate(records) if record["attempt"] == 2)
    assert first < second


def lines_of_metrics(run_dir):
    found = []
    path = run_dir / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):  # of a line that is being written
            found.append(json.loads(line))
    return [record for record in found if "grad_norm" in record]


def steps_by_attempt(run_dir):
    counts = {}
    for record in lines_of_metrics(run_dir):
        counts[record["attempt"]] = counts.get(record["attempt"], 0) + 1
    return counts
