"""When nobody takes the output, a terminal closes or files are moved, a run goes on, or saves and
ends."""

import contextlib
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "resume"))
import runs  # noqa: E402
from programs import later

LIMIT = 120
STEPS = 8


def launch_environment(**more):
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)


@pytest.fixture
def begin():
    """Returns a function that starts a program; the program is killed when the test ends."""
    started = []

    def start(words, **options):
        started.append(subprocess.Popen(list(map(str, words)), **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def in_shell(words, redirection):
    """Runs a command by a shell with these redirections; returns its exit code."""
    done = subprocess.run(["bash", "-c", f'"$@" {redirection}', "bash", *map(str, words)],
                          timeout=LIMIT, env=launch_environment(), stdin=subprocess.DEVNULL)
    return done.returncode


def wait_for(process, there):
    limit = time.monotonic() + LIMIT
    while not there():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.02)


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def is_whole(run_dir):
    """Expects that the run made all steps, and that its lock and log are as after any run."""
    assert sorted(runs.steps_of(run_dir)) == list(range(1, STEPS + 1))
    assert json.loads((run_dir / "run.lock").read_text())["released"]
    assert f"\nfinished step {STEPS} of {STEPS}" in (run_dir / "log.txt").read_text()


@pytest.mark.parametrize("redirection", ["<&- >&- 2>&-", "| head -n 1; exit ${PIPESTATUS[0]}",
                                         *later(">&-", "2>&-", ">/dev/full 2>/dev/full")])
def test_training_needs_nobody_who_takes_its_output(binary, tmp_path, redirection):
    config = runs.write_config(tmp_path)
    assert in_shell([binary("longhaul"), "train", config], redirection) == 0
    is_whole(tmp_path / "run")


def test_launch_goes_on_when_its_reader_has_gone(binary, tmp_path):
    config = runs.write_config(tmp_path)
    words = [binary("longhaul"), "launch", "-n", "2", config]
    assert in_shell(words, "2>&1 | head -n 1; exit ${PIPESTATUS[0]}") == 0
    is_whole(tmp_path / "run")
    [event] = [e for e in map(json.loads, lines_of(tmp_path / "run/events.jsonl"))
               if e["event"] == "start"]
    assert event["world"] == 2


def full_pipe():
    """The two ends of a full pipe. Its reader is there but takes nothing."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    return reader, writer


@pytest.mark.parametrize("verb", [["train"], ["launch", "-n", "2"]], ids=["train", "launch"])
def test_a_reader_that_takes_nothing_stops_neither_the_run_nor_its_save(
        binary, begin, tmp_path, verb):
    config, run_dir = runs.write_config(tmp_path), tmp_path / "run"
    reader, writer = full_pipe()
    process = begin([binary("longhaul"), *verb, config, "--set", "run.steps=100000",
                     "--set", runs.PACE], stdout=writer, stderr=writer,
                    env=launch_environment())
    os.close(writer)
    wait_for(process, lambda: len(lines_of(run_dir / "metrics.jsonl")) >= 3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 75
    os.close(reader)
    log = (run_dir / "log.txt").read_text()
    assert "\nstopped by SIGTERM after step " in log and "; saved; " in log


@pytest.mark.parametrize("redirection", [">&- 2>&- <&-", *later("2>&-", "2>/dev/full")])
def test_an_error_keeps_its_exit_code_where_nobody_reads_it(binary, tmp_path, redirection):
    for words in (["train", "nowhere.toml"], ["inspect", "nowhere"], ["launch", "nowhere.toml"],
                  ["no-verb"], ["data", "build", "nowhere", "--tokenizer", "x", "--out", "y"]):
        assert in_shell([binary("longhaul"), *words], redirection) == 78, words


def test_a_result_that_nobody_reads_ends_quietly_with_141(binary, tmp_path):
    words = [binary("longhaul"), "config", runs.write_config(tmp_path)]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, timeout=LIMIT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def on_a_terminal(words):
    """Starts a program whose session has a terminal of its own: process id and the terminal."""
    child, leader = pty.fork()
    if child == 0:
        os.execve(words[0], list(map(str, words)), launch_environment(TERM="xterm"))
    return child, leader


@pytest.mark.parametrize("verb", [["train"], ["launch", "-n", "2"]], ids=["train", "launch"])
def test_a_terminal_that_closes_asks_for_a_save(binary, run, tmp_path, verb):
    config = runs.write_config(tmp_path)
    long = ["--set", "run.steps=100000", "--set", runs.PACE]
    child, leader = on_a_terminal([binary("longhaul"), *verb, config, *long])
    metrics = tmp_path / "run/metrics.jsonl"
    limit = time.monotonic() + LIMIT
    os.set_blocking(leader, False)
    while len(lines_of(metrics)) < 3:
        assert time.monotonic() < limit
        try:
            os.read(leader, 65536)
        except BlockingIOError:
            time.sleep(0.02)
    os.close(leader)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 75
    # The log names the signal that was sent, also under launch.
    [last] = [line for line in lines_of(tmp_path / "run/log.txt") if "stopped by" in line]
    assert last.startswith("stopped by SIGHUP after step ") and "; saved; " in last
    reached = max(runs.steps_of(tmp_path / "run"))
    step = tmp_path / "run/checkpoints" / f"step_{reached:08}"
    assert (step / "manifest.json").exists()


def test_under_nohup_a_closed_terminal_is_no_request(binary, begin, tmp_path):
    config = runs.write_config(tmp_path)
    process = begin([binary("longhaul"), "train", config, "--set", runs.PACE],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for(process, lambda: len(lines_of(tmp_path / "run/metrics.jsonl")) >= 2)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=LIMIT) == 0
    is_whole(tmp_path / "run")


def test_ctrl_c_at_launch_is_named_as_what_it_was(binary, begin, tmp_path):
    config = runs.write_config(tmp_path)
    process = begin([binary("longhaul"), "launch", "-n", "2", config, "--set",
                     "run.steps=100000", "--set", runs.PACE], text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    env=launch_environment())
    wait_for(process, lambda: len(lines_of(tmp_path / "run/metrics.jsonl")) >= 3)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 75, said
    assert "stopped by SIGINT after step" in said and "SIGUSR1" not in said
    events = [json.loads(line) for line in lines_of(tmp_path / "run/events.jsonl")]
    assert [e["signal"] for e in events if e["event"] == "signal"] == ["SIGINT"]


def test_a_run_that_ends_in_order_leaves_nothing_in_memory(binary, begin, tmp_path):
    config = runs.write_config(tmp_path)
    words = [binary("longhaul"), "launch", "-n", "2", config, "--set",
             "resilience.peer_memory_every=1", "--set", runs.PACE]
    process = begin([*words, "--set", "run.steps=100000"],
                    stdout=subprocess.DEVNULL, env=launch_environment())
    wait_for(process, lambda: len(lines_of(tmp_path / "run/metrics.jsonl")) >= 3)
    log = (tmp_path / "run/log.txt").read_text()
    place = log.split("peer memory: the state is kept every 1 steps in ")[1].split(";")[0]
    root = pathlib.Path(place).parents[1]
    assert root.parent == pathlib.Path("/dev/shm") and list(pathlib.Path(place).iterdir())
    # Open MPI's own memory lies in the same directory, where the end of the run removes it.
    assert list((root / "segments").iterdir())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 75
    assert not root.exists()


def test_what_a_failed_run_keeps_is_named_and_its_next_start_takes_it(binary, begin, tmp_path):
    config = runs.write_config(tmp_path)
    sets = [word for one in ("resilience.peer_memory_every=1", "resilience.max_restarts=0",
                             "checkpoint.every=0", runs.PACE) for word in ("--set", one)]
    words = [binary("longhaul"), "launch", "-n", "2", str(config), *sets, "--set",
             "run.steps=100000"]
    process = begin(words, text=True, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, env=launch_environment())
    wait_for(process, lambda: len(lines_of(tmp_path / "run/metrics.jsonl")) >= 4)
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for mpirun in children:
        for rank in pathlib.Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split():
            os.kill(int(rank), signal.SIGKILL)
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    [line] = [line for line in said.splitlines() if "for the next start of this run" in line]
    root = pathlib.Path(line.split(" stay in ")[1].split(" for the next")[0]).parent
    assert [entry.name for entry in root.iterdir()] == ["memory"]
    reached = max(runs.steps_of(tmp_path / "run"))
    done = subprocess.run([*words, "--set", f"run.stop_after={reached + 3}"], text=True,
                          capture_output=True, env=launch_environment(), timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " in memory of 1 node (checkpoint on disk: none)" in done.stdout
    assert not root.exists()


def test_launch_ends_when_asked_although_mpirun_hangs_at_the_start(binary, begin, tmp_path):
    config = runs.write_config(tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "mpirun").write_text(f"#!/bin/sh\n: > {tmp_path}/hangs\nexec sleep 600\n")
    (programs / "mpirun").chmod(0o755)
    process = begin(
        [binary("longhaul"), "launch", "-n", "2", config], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=launch_environment(PATH=f"{programs}:{os.environ['PATH']}"))
    wait_for(process, (tmp_path / "hangs").exists)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)  # and not the 600 s that workers have
    assert process.returncode == 75, said
    assert "no worker has begun" in said


def test_launch_says_before_the_start_how_many_open_files_it_lacks(binary, tmp_path):
    config = runs.write_config(tmp_path)
    done = subprocess.run(["bash", "-c", 'ulimit -n 40; exec "$@"', "bash", binary("longhaul"),
                           "launch", "-n", "8", config, "--set", "batch.micro_size=1"],
                          text=True, capture_output=True, env=launch_environment(), timeout=LIMIT)
    assert done.returncode == 78, done.stdout + done.stderr
    assert "[launch] mpirun with 8 ranks needs 60 open files at once" in done.stderr
    assert "and 40 are allowed" in done.stderr
    assert not (tmp_path / "run").exists()


def test_files_that_are_rotated_or_removed_in_a_run_are_begun_anew(binary, begin, tmp_path):
    config, run_dir = runs.write_config(tmp_path), tmp_path / "run"
    process = begin([binary("longhaul"), "train", config, "--set", "run.steps=100000",
                     "--set", runs.PACE], text=True, stdout=subprocess.PIPE)
    wait_for(process, lambda: len(lines_of(run_dir / "metrics.jsonl")) >= 3)
    for name in ("log.txt", "metrics.jsonl"):
        os.rename(run_dir / name, run_dir / f"{name}.1")
    (run_dir / "events.jsonl").unlink()
    wait_for(process, lambda: len(lines_of(run_dir / "metrics.jsonl")) >= 3)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 75
    steps = [[json.loads(line)["step"] for line in lines_of(run_dir / f"metrics.jsonl{end}")]
             for end in (".1", "")]
    assert steps[0] + steps[1] == list(range(1, steps[1][-1] + 1))
    assert "\nstopped by SIGTERM" in (run_dir / "log.txt").read_text()
    assert "end" in [json.loads(line)["event"] for line in lines_of(run_dir / "events.jsonl")]
    for name in ("log.txt", "metrics.jsonl", "events.jsonl"):
        assert said.count(f"{name} was renamed or removed") == 1, said


def test_a_group_can_stop_and_go_on_with_a_run(binary, tmp_path):
    config = runs.write_config(tmp_path)
    done = subprocess.run([binary("longhaul"), "train", config], capture_output=True,
                          timeout=LIMIT, preexec_fn=lambda: os.umask(0o002))
    assert done.returncode == 0
    for path in [tmp_path / "run", *(tmp_path / "run").rglob("*")]:
        wanted = 0o775 if path.is_dir() else 0o664
        assert path.stat().st_mode & 0o777 == wanted, path
