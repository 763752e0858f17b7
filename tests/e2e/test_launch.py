"""longhaul launch: ranks that die, hang or are told to stop, on this machine."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "resume"))
import runs  # noqa: E402

STEPS = 60


def start(binary, config, *sets, ranks=2):
    sets = ("run.steps=60", "checkpoint.every=5", *sets)
    words = [binary("longhaul"), "launch", "-n", str(ranks), config]
    words += [word for one in sets for word in ("--set", one)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env=environment)


def end(process):
    """The exit code and what was said."""
    try:
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, said


def workers(config):
    """Process ids of the ranks, in their order."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        rank = [w for w in words if w.startswith(b"OMPI_COMM_WORLD_RANK=")]
        record = [w for w in words if w.startswith(b"LONGHAUL_RECORD_DIR=")]
        if rank and record and f"/{config.stem}.toml".encode() in b" ".join(words + [command]):
            found.append((int(rank[0].split(b"=")[1]), int(entry.name)))
    return [pid for _, pid in sorted(found)]


def wait_for_step(run_dir, step):
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        path = run_dir / "metrics.jsonl"
        if path.exists() and len(path.read_text().splitlines()) >= step:
            return
        time.sleep(0.02)
    pytest.fail(f"{run_dir} did not come to step {step}")


def events(run_dir, name):
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


@pytest.fixture
def undisturbed(binary, tmp_path):
    config = runs.write_config(tmp_path, "undisturbed")
    code, said = end(start(binary, config))
    assert code == 0, said
    return runs.curve(tmp_path / "undisturbed")


def test_a_killed_rank_is_named_and_the_run_ends_as_the_undisturbed_one(binary, tmp_path,
                                                                        undisturbed):
    config = runs.write_config(tmp_path, "killed")
    process = start(binary, config)
    wait_for_step(tmp_path / "killed", 17)
    os.kill(workers(config)[1], signal.SIGKILL)
    code, said = end(process)
    assert code == 0, said
    assert runs.curve(tmp_path / "killed") == undisturbed
    [fault] = events(tmp_path / "killed", "fault")
    assert (fault["kind"], fault["rank"]) == ("killed", 1)
    assert "rank 1" in fault["cause"] and "dp 1" in fault["cause"]
    [restart] = events(tmp_path / "killed", "restart")
    assert restart["seconds_down"] < 10
    assert "restart 1 after step" in said
    status = json.loads((tmp_path / "killed" / "status.json").read_text())
    assert (status["state"], status["restarts"]) == ("done", 1)


def test_a_stopped_rank_is_found_named_and_the_run_goes_on(binary, tmp_path, undisturbed):
    config = runs.write_config(tmp_path, "hung")
    process = start(binary, config, "resilience.hang_timeout_s=3")
    wait_for_step(tmp_path / "hung", 17)
    os.kill(workers(config)[0], signal.SIGSTOP)
    code, said = end(process)
    assert code == 0, said
    assert runs.curve(tmp_path / "hung") == undisturbed
    [hang] = events(tmp_path / "hung", "hang")
    assert hang["ranks"] == [0]
    assert "rank 0" in hang["verdict"] and "stopped by a signal" in hang["verdict"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_and_ends_and_the_same_command_goes_on(binary, tmp_path, number):
    config = runs.write_config(tmp_path, "told")
    process = start(binary, config)
    wait_for_step(tmp_path / "told", 12)
    process.send_signal(number)
    code, said = end(process)
    assert code == 75, said
    assert not events(tmp_path / "told", "fault")
    saved = events(tmp_path / "told", "checkpoint")[-1]["step"]
    assert saved == events(tmp_path / "told", "end")[-1]["step"] < STEPS
    code, said = end(start(binary, config))
    assert code == 0, said
    assert events(tmp_path / "told", "start")[-1]["step"] == saved


def test_a_wrong_setting_is_not_retried(binary, tmp_path):
    config = runs.write_config(tmp_path, "wrong")
    code, said = end(start(binary, config, "parallel.tp=2", "parallel.pp=2"))
    assert code == 78, said
    assert not events(tmp_path / "wrong", "restart")


def test_a_second_supervisor_of_the_run_is_refused(binary, tmp_path):
    config = runs.write_config(tmp_path, "twice")
    first = start(binary, config)
    wait_for_step(tmp_path / "twice", 3)
    code, said = end(start(binary, config))
    assert code == 78 and "supervises this run" in said, said
    code, said = end(first)
    assert code == 0, said
