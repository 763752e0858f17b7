"""When a rank dies, hangs or differs, the others end, each with a message of its own."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import steps_of, write_config  # noqa: E402

WRONG, TEMPORARY = 78, 75
LIMIT = 150  # seconds within which everything here has ended
LONG = ["run.steps=100000", "checkpoint.every=0"]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMP_NUM_THREADS="1")


def sets(*values):
    return [word for value in values for word in ("--set", value)]


def mpirun(binary, *groups, **environment):
    """Starts mpirun; each group is (number of ranks, arguments of longhaul)."""
    command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for count, arguments in groups:
        command += [":"] if command[-1] != "none" else []
        command += ["-n", str(count), binary("longhaul"), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=dict(ENVIRONMENT, **environment))


def finish(process):
    """The exit code and the program's own error lines. A program that hangs fails the test."""
    try:
        _, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, [line for line in errors.splitlines()
                                if line.startswith("longhaul: error: ")]


def rank_pids(parent):
    """rank -> process id, of mpirun's children."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text()
            if int(stat.rpartition(")")[2].split()[1]) != parent:
                continue
            variables = (path / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue  # it ended meanwhile
        for variable in variables:
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(variable.partition(b"=")[2])] = int(path.name)
    return found


def started(process, run_dir, steps=3):
    """Waits until the run is in the middle of its steps; returns its ranks."""
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        if (run_dir / "metrics.jsonl").exists() and len(steps_of(run_dir)) >= steps:
            return rank_pids(process.pid)
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the run made no steps")


OPERATIONS = re.compile(rb"all_reduce|all_gather|reduce_scatter|send_recv")
OPERATION = r"\w+ number \d+ \(\d+ bytes\) on '\w+'"


@pytest.mark.parametrize("ranks,victim,layout", [
    (2, 0, []), (4, 1, ["parallel.tp=2", "parallel.pp=2"]),
    pytest.param(2, 1, [], marks=pytest.mark.soak), pytest.param(4, 2, [], marks=pytest.mark.soak),
], ids=["first_of_2", "tp2_pp2", "last_of_2", "dp4"])
def test_a_killed_rank_ends_the_others_by_name(binary, tmp_path, ranks, victim, layout):
    config = write_config(tmp_path)
    # On a busy machine mpirun may kill the other ranks before one has printed anything, so the test
    # tries again.
    for _ in range(4):
        for name in ("run", "records"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        process = mpirun(binary, (ranks, ["train", config, *sets(*LONG, *layout,
                                                                 "batch.micro_size=1")]),
                         LONGHAUL_RECORD_DIR=str(tmp_path / "records"))
        pids = started(process, tmp_path / "run")
        assert sorted(pids) == list(range(ranks))
        os.kill(pids[victim], signal.SIGKILL)
        code, errors = finish(process)
        assert code not in (0, WRONG)
        if errors:
            break
    assert errors
    for line in errors:
        # A pipeline schedule may first say which message it waits for.
        match = re.match(r"longhaul: error: rank (\d+) of (\d+): (\[pipeline\] .*: )?\[comm\] "
                         r"(step \d+ phase \w+: )?" + OPERATION, line)
        assert match and int(match[1]) != victim and int(match[2]) == ranks, line
        assert "another rank has died" in line
    assert len(errors) == len(set(errors)) <= ranks - 1
    # The records of dead and living ranks show their last operations.
    records = sorted((tmp_path / "records").iterdir())
    assert [r.name for r in records] == [f"rank_{r:05}.record" for r in range(ranks)]
    # A record has the newest operations only, which may all be messages on a pipeline stage.
    assert all(r.read_bytes()[:8] == b"LHRECORD" and OPERATIONS.search(r.read_bytes())
               for r in records)


def test_a_stuck_rank_is_given_up_after_the_deadline(binary, tmp_path):
    config = write_config(tmp_path)
    process = mpirun(binary, (2, ["train", config, *sets(*LONG, "resilience.comm_timeout_s=4")]))
    pids = started(process, tmp_path / "run")
    os.kill(pids[1], signal.SIGSTOP)
    begin = time.monotonic()
    code, errors = finish(process)
    assert 3 < time.monotonic() - begin < 100
    assert code == TEMPORARY
    assert re.match(r"longhaul: error: rank 0 of 2: \[comm\] (step \d+ phase \w+: )?" + OPERATION
                    + r"(.*) did not end within 4.0 s", errors[0]), errors
    limit = time.monotonic() + 20
    while pathlib.Path(f"/proc/{pids[1]}").exists() and time.monotonic() < limit:
        time.sleep(0.1)
    assert not pathlib.Path(f"/proc/{pids[1]}").exists()


def test_the_run_goes_on_after_a_killed_rank(binary, run, tmp_path):
    config = write_config(tmp_path)
    process = mpirun(binary, (2, ["train", config, *sets("run.steps=100000",
                                                         "checkpoint.every=1")]))
    pids = started(process, tmp_path / "run")
    os.kill(pids[1], signal.SIGKILL)
    finish(process)
    done = max(steps_of(tmp_path / "run"))
    run("longhaul", "train", config, *sets("run.steps=100000", f"run.stop_after={done + 2}"),
        ranks=2)
    assert max(steps_of(tmp_path / "run")) == done + 2


@pytest.mark.parametrize("ranks,wrong,words", [
    (3, ["batch.global_size=8"], ["batch.global_size = 8", "dp 3"]),
    pytest.param(3, ["parallel.tp=2"], ["parallel.tp"], marks=pytest.mark.soak),
    (2, ["optimizer.lrr=1"], ["optimizer.lrr"]),
    (2, ["model.config=nowhere"], ["nowhere"]),
], ids=["batch", "degrees", "key", "model"])
def test_what_all_ranks_find_is_said_once(binary, tmp_path, ranks, wrong, words):
    code, errors = finish(mpirun(binary, (ranks, ["train", write_config(tmp_path),
                                                  *sets(*wrong)])))
    assert code == WRONG
    assert len(errors) == 1 and " rank " not in errors[0].split("[")[0], errors
    for word in words:
        assert word in errors[0]


def test_ranks_with_other_settings_are_refused_with_the_first_key(binary, tmp_path):
    config = write_config(tmp_path)
    same = ["train", config]
    code, errors = finish(mpirun(binary, (1, same), (1, [*same, *sets("optimizer.lr=2e-3")]),
                                 (1, same)))
    assert code == WRONG
    assert errors == ["longhaul: error: [config] rank 1 of 3 was started with other settings than "
                      "rank 0: optimizer.lr = 0.003 on rank 0, 0.002 on rank 1; start every rank "
                      "with the same file and --set"]
    assert not (tmp_path / "run").exists()


def test_a_failure_of_one_rank_carries_its_rank(binary, tmp_path):
    config = write_config(tmp_path)
    code, errors = finish(mpirun(binary, (1, ["train", config]),
                                 (1, ["train", config, *sets("optimizer.lrr=1")])))
    assert code == WRONG
    mine = [line for line in errors if "optimizer.lrr" in line]
    assert len(mine) == 1 and mine[0].startswith("longhaul: error: rank 1 of 2: [config]"), errors
