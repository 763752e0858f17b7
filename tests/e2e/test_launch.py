"""longhaul launch: ranks that die, hang or are told to stop, on this machine."""

import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "resume"))
import runs  # noqa: E402
from programs import later

STEPS = 60


def start(binary, config, *sets, ranks=2, **variables):
    sets = ("run.steps=60", "checkpoint.every=5", *sets)
    words = [binary("longhaul"), "launch", "-n", str(ranks), config]
    words += [word for one in sets for word in ("--set", one)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       **variables)
    return subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env=environment)


def end(process):
    """The exit code and the output of a process."""
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
        if rank and record and str(config).encode() in b" ".join(words + [command]):
            found.append((int(rank[0].split(b"=")[1]), int(entry.name)))
    return [pid for _, pid in sorted(found)]


# Seconds that no step, start or save takes even on a loaded machine.
HANG = "resilience.hang_timeout_s=8"


def wait_for_step(run_dir, step):
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        path = run_dir / "metrics.jsonl"
        if path.exists() and len(path.read_text().splitlines()) >= step:
            return
        time.sleep(0.02)
    pytest.fail(f"{run_dir} did not come to step {step}")


def events(run_dir, name):
    path = run_dir / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == name]


@pytest.fixture(scope="module")
def undisturbed(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    config = runs.write_config(folder)
    code, said = end(start(binary, config))
    assert code == 0, said
    return runs.curve(folder / "run")


def test_a_killed_rank_is_named_and_the_run_ends_as_the_undisturbed_one(binary, tmp_path,
                                                                        undisturbed):
    config = runs.write_config(tmp_path, "killed")
    process = start(binary, config, runs.PACE)
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
    # The event names the step from which the run goes on, not the one in which the fault happened.
    starts = events(tmp_path / "killed", "start")
    assert restart["from_step"] == starts[1]["step"] and restart["from_step"] % 5 == 0
    assert "restart 1 after step" in said
    status = json.loads((tmp_path / "killed" / "status.json").read_text())
    assert (status["state"], status["restarts"]) == ("done", 1)


@pytest.mark.parametrize("spoil", ["half", pytest.param("gone", marks=pytest.mark.soak)])
def test_a_run_whose_settings_file_is_spoilt_goes_on_by_its_own_copy(binary, tmp_path,
                                                                    undisturbed, spoil):
    config = runs.write_config(tmp_path)
    process = start(binary, config, runs.PACE)
    wait_for_step(tmp_path / "run", 7)
    if spoil == "half":  # an editor is writing it
        text = config.read_text()
        config.write_text(text[:text.index("=", len(text) // 2)])
    else:
        config.unlink()
    os.kill(workers(config)[1], signal.SIGKILL)
    code, said = end(process)
    assert code == 0, said
    assert f"{config} cannot be read any more; the run's own copy of the settings is used" in said
    assert runs.curve(tmp_path / "run") == undisturbed


@pytest.mark.soak
def test_a_broken_new_program_is_started_three_times(binary, tmp_path):
    config = runs.write_config(tmp_path)
    folder, starts = tmp_path / "bin", tmp_path / "starts"
    folder.mkdir()
    for program in ("longhaul", "longhaul-torch"):
        shutil.copy2(binary(program), folder)
    process = start(lambda program: folder / program, config, runs.PACE, "run.steps=5000")
    wait_for_step(tmp_path / "run", 7)
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\necho start >> {starts}\nkill -SEGV $$\n")
    broken.chmod(0o755)
    broken.replace(folder / "longhaul-torch")
    os.kill(workers(config)[1], signal.SIGKILL)
    code, said = end(process)
    assert code == 78, said
    assert len(starts.read_text().split()) == 3 * 2, said
    assert [event["kind"] for event in events(tmp_path / "run", "fault")] == ["killed"] * 4, said


def test_a_run_whose_directory_is_renamed_ends_for_a_person_to_look(binary, tmp_path):
    config = runs.write_config(tmp_path)
    process = start(binary, config, runs.PACE, "run.steps=5000")
    wait_for_step(tmp_path / "run", 3)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    code, said = end(process)
    assert code == 78, said
    assert "the run's directory was removed or renamed while the run trained" in said
    assert not workers(config)


def test_a_start_that_finds_its_run_read_only_may_be_tried_again(binary, tmp_path):
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
        pytest.skip("mounts of one's own are not allowed here")
    config = runs.write_config(tmp_path)
    words = [binary("longhaul"), "train", str(config), "--set", "checkpoint.every=5"]
    subprocess.run([*words, "--set", "run.stop_after=6"], check=True, capture_output=True,
                   timeout=60)
    for place in (tmp_path / "run", tmp_path / "run" / "checkpoints"):
        mounts = f"mount --bind '{place}' '{place}' && mount -o remount,bind,ro '{place}'"
        done = subprocess.run(["unshare", "-m", "sh", "-c", mounts + ' && exec "$@"', "sh", *words],
                              check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 75, (place, done.stderr)
        assert "Read-only file system" in done.stderr, (place, done.stderr)


def test_a_stopped_rank_is_found_named_and_the_run_goes_on(binary, tmp_path, undisturbed):
    config = runs.write_config(tmp_path, "hung")
    process = start(binary, config, HANG, runs.PACE)
    wait_for_step(tmp_path / "hung", 17)
    os.kill(workers(config)[0], signal.SIGSTOP)
    code, said = end(process)
    assert code == 0, said
    assert runs.curve(tmp_path / "hung") == undisturbed
    [hang] = events(tmp_path / "hung", "hang")
    assert hang["ranks"] == [0]
    assert "rank 0" in hang["verdict"] and "stopped by a signal" in hang["verdict"]


def test_storage_that_stands_still_is_nobodys_fault_and_is_waited_for(binary, tmp_path,
                                                                      undisturbed):
    """Until a file (the gate) appears, rank 0 waits in writing the record of a step, the other
    ranks wait for rank 0, and the supervisor's question about the storage waits, too."""
    config, gate = runs.write_config(tmp_path, "frozen"), tmp_path / "gate"
    rules = [f"pause:{one}:gate={gate}" for one in
             ("op=write:path=metrics.jsonl:n=12", "op=create:path=storage_probe")]
    process = start(binary, config, HANG,
                    LD_PRELOAD=str(binary("liblonghaul_fault_files.so")),
                    LONGHAUL_FAULT=";".join(rules),
                    LONGHAUL_FAULT_DIR=str(tmp_path / "frozen"))
    limit = time.monotonic() + 90
    log = tmp_path / "frozen" / "log.txt"
    while time.monotonic() < limit and not (log.exists() and "storage of" in log.read_text()):
        time.sleep(0.1)
    gate.touch()
    code, said = end(process)
    assert code == 0, said
    assert runs.curve(tmp_path / "frozen") == undisturbed
    assert not events(tmp_path / "frozen", "hang") and not events(tmp_path / "frozen", "fault")
    [silent] = events(tmp_path / "frozen", "storage_silent")
    assert str(tmp_path / "frozen" / "checkpoints") in silent["directories"]
    assert events(tmp_path / "frozen", "storage_answers")
    assert "no rank is at fault" in said, said


def test_a_save_that_stands_still_is_told_with_its_rank_and_started_again(binary, tmp_path,
                                                                         undisturbed):
    """Training goes on during the save of step 10, and waits for that save at step 15."""
    config, gate = runs.write_config(tmp_path, "stuck"), tmp_path / "gate"
    process = start(binary, config, HANG,
                    LD_PRELOAD=str(binary("liblonghaul_fault_files.so")),
                    LONGHAUL_FAULT=f"pause:op=create:path=step_00000010/:gate={gate}",
                    LONGHAUL_FAULT_RANK="1", LONGHAUL_FAULT_DIR=str(tmp_path / "stuck"))
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not events(tmp_path / "stuck", "hang"):
        time.sleep(0.1)
    gate.touch()
    code, said = end(process)
    assert code == 0, said
    assert runs.curve(tmp_path / "stuck") == undisturbed
    [hang] = events(tmp_path / "stuck", "hang")
    assert (hang["ranks"], hang["work"]) == ([1], "waiting for a save")
    assert "has not entered save number 10" in hang["verdict"]
    assert hang["seconds"] < 15


@pytest.mark.parametrize("number,to_rank", [
    (signal.SIGTERM, False),
    (signal.SIGXCPU, True),  # as where its processor time is used up
    *later((signal.SIGINT, False), (signal.SIGUSR1, False), (signal.SIGUSR2, False))])
def test_a_signal_saves_and_ends_and_the_same_command_goes_on(binary, tmp_path, number, to_rank):
    config = runs.write_config(tmp_path, "told")
    process = start(binary, config, runs.PACE)
    wait_for_step(tmp_path / "told", 12)
    os.kill(workers(config)[1] if to_rank else process.pid, number)
    code, said = end(process)
    assert code == 75, said
    assert "; saved; the same command goes on" in without_noise(said), said
    assert not events(tmp_path / "told", "fault")
    saved = events(tmp_path / "told", "checkpoint")[-1]["step"]
    assert saved == events(tmp_path / "told", "end")[-1]["step"] < STEPS
    code, said = end(start(binary, config))
    assert code == 0, said
    assert events(tmp_path / "told", "start")[-1]["step"] == saved


def test_a_wrong_setting_that_only_ranks_can_find_is_not_retried(binary, run, tmp_path):
    config = runs.write_config(tmp_path, "wrong")
    run("longhaul", "train", config, "--set", "run.stop_after=1")
    code, said = end(start(binary, config, "run.seed=99"))
    assert code == 78 and said.count("longhaul: error: ") == 1, said
    assert "run.seed" in without_noise(said)
    assert not events(tmp_path / "wrong", "restart")


def without_noise(said):
    """Expects that no words of Open MPI stand below those of longhaul."""
    for words in ("Primary job", "mpirun noticed", "mpirun detected", "MPI_ABORT", "-----"):
        assert words not in said, said
    return said.strip().splitlines()[-1]


def test_the_file_stop_ends_it_for_good(binary, tmp_path):
    config = runs.write_config(tmp_path, "stop")
    process = start(binary, config, runs.PACE)
    wait_for_step(tmp_path / "stop", 7)
    (tmp_path / "stop" / "STOP").touch()
    code, said = end(process)
    assert code == 79, said
    assert not events(tmp_path / "stop", "fault") and not events(tmp_path / "stop", "restart")
    [last] = events(tmp_path / "stop", "end")
    assert without_noise(said).startswith(f"stopped by the file STOP after step {last['step']}; "
                                          "saved"), said


def test_a_second_interrupt_ends_at_once_and_says_what_it_leaves_behind(binary, run, tmp_path):
    config = runs.write_config(tmp_path, "twice")
    run("longhaul", "train", config, "--set", "run.steps=60", "--set", "run.stop_after=10")
    # The first interrupt asks for a save, which takes longer than the test waits.
    process = start(binary, config, "checkpoint.every=0",
                    'debug.delays=[{phase = "checkpoint", seconds = 100}, '
                    '{phase = "update", seconds = 0.2}]')
    wait_for_step(tmp_path / "twice", 12)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    code, said = end(process)
    assert code == 130, said
    reached = max(runs.steps_of(tmp_path / "twice"))
    again = re.search(r"newest checkpoint step 10; steps 11 to (\d+) will be trained again$",
                      without_noise(said))
    assert again and reached <= int(again[1]) <= reached + 1, said
    assert not workers(config)


def fake_programs(tmp_path, *names):
    """A directory for PATH with programs of these names, which only leave a mark when they run."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in names:
        (programs / name).write_text(f"#!/bin/sh\n: > {tmp_path}/started\nexit 3\n")
        (programs / name).chmod(0o755)
    return programs


def launch_with(binary, programs, config, *words):
    return subprocess.run([binary("longhaul"), "launch", *words, config], text=True,
                          capture_output=True, env=dict(os.environ, PATH=str(programs)),
                          timeout=60)


def test_without_mpirun_it_says_what_to_install(binary, tmp_path):
    config = runs.write_config(tmp_path, "alone")
    done = launch_with(binary, fake_programs(tmp_path), config, "-n", "2")
    assert done.returncode == 78
    assert done.stderr.startswith("longhaul: error: [launch] there is no mpirun in PATH; install")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "alone").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_root_is_told_in_one_line_what_mpirun_wants(binary, tmp_path, monkeypatch):
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
        monkeypatch.delenv(name, raising=False)
    config = runs.write_config(tmp_path, "root")
    done = launch_with(binary, fake_programs(tmp_path, "mpirun"), config, "-n", "2")
    assert done.returncode == 78, done.stderr
    [line] = done.stderr.splitlines()
    assert "[launch] mpirun does not run as root" in line and "OMPI_ALLOW_RUN_AS_ROOT=1" in line
    assert not (tmp_path / "started").exists() and not (tmp_path / "root").exists()


@pytest.mark.parametrize("there,wanted", [([], "isolated"), *later((["ssh"], "none"))])
def test_a_machine_without_ssh_starts_its_own_ranks(binary, tmp_path, monkeypatch, there, wanted):
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    for name in ("OMPI_MCA_plm", "OMPI_MCA_plm_rsh_agent"):
        monkeypatch.delenv(name, raising=False)
    programs = fake_programs(tmp_path, "mpirun", *there)
    said = tmp_path / "said"
    script = f'#!/bin/sh\necho "${{OMPI_MCA_plm:-none}}" > {said}\nexit 78\n'
    (programs / "mpirun").write_text(script)
    config = runs.write_config(tmp_path, "alone")
    launch_with(binary, programs, config, "-n", "2")
    assert said.read_text() == wanted + "\n"


@pytest.mark.parametrize("words,said", [
    (["-n", "2", "--set", "optimizer.lrr=1"], "optimizer.lrr"),
    (["-n", "3"], "batch.global_size"),
    (["-n", "2", "--set", "parallel.tp=4"], "parallel.tp"),
    (["-n", "2", "--set", 'model.config="nowhere"'], "model.config: nowhere is not on this"),
    (["-n", "2", "--set", 'init.weights="nowhere"'], "init.weights: nowhere is not on this"),
    (["-n", "2", "--set", 'data.train=[{path="nowhere"}]'], "nowhere"),
    (["-n", "2", "--set", "data.seq_len=1000000"], "max_position_embeddings"),
], ids=["key", "batch", "layout", "model", "weights", "data", "length"])
def test_what_can_be_known_is_refused_before_mpirun_is_started(binary, tmp_path, words, said):
    config = runs.write_config(tmp_path, "wrong")
    done = launch_with(binary, fake_programs(tmp_path, "mpirun"), config, *words)
    assert done.returncode == 78, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("longhaul: error: ") and said in line
    assert not (tmp_path / "started").exists()


def refused_by_launch(binary, tmp_path, config, *words, before=(), **environment):
    """The one error line of a launch that was refused; nothing was started."""
    programs = fake_programs(tmp_path, "mpirun")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run([*before, binary("longhaul"), "launch", "-n", "2", *words, config],
                          text=True, capture_output=True, timeout=60,
                          env=dict(os.environ, PATH=str(programs), **allowed, **environment))
    assert done.returncode == 78, done.stdout + done.stderr
    [line] = [line for line in done.stderr.splitlines() if " warning: ulimit " not in line]
    assert not (tmp_path / "started").exists()
    return line


def test_a_directory_in_which_mpirun_can_make_nothing_is_told_before_the_start(binary, tmp_path):
    (tmp_path / "file").write_text("")
    line = refused_by_launch(binary, tmp_path, runs.write_config(tmp_path, "run"),
                             TMPDIR=str(tmp_path / "file/below"))
    assert f"mpirun keeps its files in {tmp_path}/file/below" in line and "set TMPDIR" in line


def test_a_size_of_files_that_is_too_small_for_mpirun_is_told_before_the_start(binary, tmp_path):
    line = refused_by_launch(binary, tmp_path, runs.write_config(tmp_path, "run"),
                             before=["/usr/bin/prlimit", "--fsize=1000000"])
    assert "mpirun needs a file of 16.0 MB, and 1.0 MB are allowed" in line and "ulimit -Hf" in line


@pytest.mark.skipif(subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0,
                    reason="no network of its own can be made")
def test_a_loopback_that_is_down_is_told_before_the_start(binary, tmp_path):
    line = refused_by_launch(binary, tmp_path, runs.write_config(tmp_path, "run"),
                             before=["/usr/bin/unshare", "-n"])
    assert "127.0.0.1 cannot be reached" in line and "ip link set lo up" in line


def test_checkpoints_that_are_a_link_to_nothing_are_told_before_the_start(binary, run, tmp_path):
    config = runs.write_config(tmp_path, "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(tmp_path / "purged")
    line = refused_by_launch(binary, tmp_path, config)
    assert f"run/checkpoints: a link to {tmp_path}/purged, where nothing is" in line
    trained = run("longhaul", "train", config, check=False)
    assert trained.returncode == 78 and "where nothing is" in trained.stderr
    assert not (tmp_path / "purged").exists()


def test_a_start_that_fails_is_told_by_its_cause_and_not_by_the_last_line(binary, tmp_path,
                                                                          monkeypatch):
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    programs = fake_programs(tmp_path, "mpirun")
    dashes = "-" * 74
    (programs / "mpirun").write_text(
        f"#!/bin/sh\nexec >&2\necho {dashes}\necho 'mpirun was unable to do a new thing:'\n"
        f"echo '  Node: n1'\necho {dashes}\necho {dashes}\necho '  a last line'\necho {dashes}\n"
        "exit 213\n")
    config = runs.write_config(tmp_path, "run")
    done = launch_with(binary, programs, config, "-n", "2", "--set", "resilience.max_restarts=0")
    assert ("the launcher ended with exit code 213 before any rank had begun: mpirun was unable to "
            "do a new thing: Node: n1") in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_second_supervisor_of_the_run_is_refused(binary, tmp_path):
    config = runs.write_config(tmp_path, "twice")
    first = start(binary, config, runs.PACE)
    wait_for_step(tmp_path / "twice", 3)
    code, said = end(start(binary, config))
    assert code == 78 and "supervises this run" in said, said
    code, said = end(first)
    assert code == 0, said


def ledger_of(binary, run_dir):
    done = subprocess.run([binary("longhaul"), "report", run_dir, "--json"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["ledger"]


def test_every_second_of_two_lives_of_a_job_is_in_one_class_of_one_ledger(binary, tmp_path,
                                                                          monkeypatch):
    """A rank is killed, the supervisor is killed in its allocation, the job waits in the queue, and
    the run is paused."""
    config, run = runs.write_config(tmp_path, "ledger"), tmp_path / "ledger"
    slow = ("run.steps=400", 'debug.delays=[{phase = "gradients", seconds = 0.03}]')
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    begun = time.time()
    process = start(binary, config, *slow, ranks=1)
    wait_for_step(run, 17)
    os.kill(json.loads((run / "status.json").read_text())["ranks"][0]["pid"], signal.SIGKILL)
    wait_for_step(run, 40)
    process.kill()
    process.wait()
    os.kill(json.loads((run / "status.json").read_text())["ranks"][0]["pid"], signal.SIGKILL)
    time.sleep(2)  # allocated, and nobody there
    process = start(binary, config, *slow, ranks=1)
    wait_for_step(run, 60)
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 75
    time.sleep(3)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    process = start(binary, config, "run.stop_after=110", *slow, ranks=1)
    (run / "PAUSE").touch()
    limit = time.monotonic() + 60
    while not any("file" in event for event in events(run, "signal")):
        assert time.monotonic() < limit
        time.sleep(0.05)
    time.sleep(2)
    (run / "PAUSE").unlink()
    code, said = end(process)
    ended = time.time()
    assert code == 0, said
    ledger = ledger_of(binary, run)
    seconds = ledger["by_class"]
    assert abs(sum(seconds.values()) - ledger["seconds"]) < 1e-6
    assert abs(ledger["seconds"] - (ended - begun)) < 2.0, (seconds, ended - begun)
    assert 2.0 <= seconds["idle"] < 6 and 3.0 <= seconds["waiting"] < 6, seconds
    assert 2.0 <= seconds["paused"] < 4, seconds
    assert ledger["goodput_of_allocation"] == pytest.approx(
        seconds["compute"] / (ledger["seconds"] - seconds["waiting"]))
    [restart] = events(run, "restart")
    assert 0 < restart["seconds_down"] < seconds["restart"]
    [train] = [metric for metric in json.loads((run / "results.json").read_text())["results"][
        "metrics"] if metric["MetricName"] == "Time to train"]
    assert train["MeasuredValue"] * 60 == pytest.approx(ledger["seconds"], abs=1e-3)
    for name, value in train["AdditionalData"]["Seconds"].items():
        assert seconds[name] == pytest.approx(value, abs=1e-3), name


def processes_below(pid):
    """The process and all processes that it has started."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def test_the_secret_is_in_no_environment_and_no_list_of_arguments(binary, tmp_path):
    config = runs.write_config(tmp_path, "hosts")
    words = [binary("longhaul"), "launch", "--hosts", platform.node(), "-n", "1",
             "--ranks-per-node", "1", config, "--set", "run.steps=100000"]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        wait_for_step(tmp_path / "hosts", 3)
        seen = []
        for pid in processes_below(process.pid):
            text = b"\0".join(pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
                              for name in ("cmdline", "environ"))
            seen.append(text[:60].replace(b"\0", b" ").decode())
            # The secret has 64 hex digits, and nothing else in these texts has as many.
            assert b"CONTROL_SECRET" not in text, seen
            assert not re.search(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", text), seen
        for who in ("longhaul launch", "longhaul agent", "longhaul rank 0"):
            assert any(who in one for one in seen), seen
    finally:
        process.send_signal(signal.SIGTERM)
        end(process)
