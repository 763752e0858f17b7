"""What watch and report say of a real training that was killed and continued."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from programs import later  # noqa: E402
from runs import write_config  # noqa: E402

LONGHAUL = os.path.join(os.environ["LONGHAUL_BIN_DIR"], "longhaul")


def figures(run_dir):
    done = subprocess.run([LONGHAUL, "watch", run_dir, "--once", "--json"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_ledger_of_a_run_that_was_killed_and_continued(tmp_path):
    config = write_config(tmp_path)
    run_dir = tmp_path / "run"
    longer = [LONGHAUL, "train", str(config), "--set", "run.steps=4000", "--set",
              "checkpoint.every=100", "--set", "log.every=1000"]
    begun = time.time()
    training = subprocess.Popen(longer, stdout=subprocess.DEVNULL)
    try:
        alive = {}
        while alive.get("step", 0) < 150 or not alive.get("checkpoint"):
            assert time.time() - begun < 60 and training.poll() is None, alive
            time.sleep(0.05)
            if (run_dir / "metrics.jsonl").exists():
                alive = figures(run_dir)
        assert alive["state"] == "training" and alive["alive"] and alive["last_step"] == 4000
        assert alive["seconds_left"] > 0
    finally:
        training.send_signal(signal.SIGKILL)
        training.wait()
    killed = figures(run_dir)
    assert killed["state"] == "killed" and not killed["alive"]
    pause = time.time()
    time.sleep(1.0)
    stop = killed["step"] + 20
    done = subprocess.run(longer + ["--set", f"run.stop_after={stop}"], capture_output=True,
                          text=True, timeout=60)
    ended = time.time()
    assert done.returncode == 0, done.stderr
    after = figures(run_dir)
    ledger, seconds = after["ledger"], after["ledger"]["by_class"]
    resumed = json.loads([line for line in (run_dir / "events.jsonl").read_text().splitlines()
                          if '"event":"start"' in line][-1])["step"]
    assert resumed % 100 == 0 and resumed > 0
    assert after["state"] == "done" and after["step"] == stop and after["restarts"] == 1
    assert ledger["steps"] == stop and ledger["steps_redone"] == killed["step"] - resumed
    # The ledger adds up to the time that this test has measured, from the start of the process to
    # its end.
    assert abs(sum(seconds.values()) - ledger["seconds"]) < 1e-6
    assert abs(ledger["seconds"] - (ended - begun)) < 0.5
    assert 1.0 <= seconds["restart"] <= 1.0 + (ended - pause) and seconds["idle"] == 0
    assert seconds["compute"] > 0 and seconds["save"] > 0
    assert (seconds["redone"] > 0) == (killed["step"] > resumed)
    assert after["checkpoint"]["step"] == stop


def left_by(run_dir):
    """What other programs read in a run's files, without what grows with each start."""
    files = {str(path.relative_to(run_dir)): path.read_bytes()
             for path in sorted(run_dir.rglob("*")) if path.is_file()
             and path.name not in ("log.txt", "events.jsonl", "run.json", "run.lock")
             and path.parent.name != "control"}
    report = json.loads(subprocess.run(
        [LONGHAUL, "report", run_dir, "--json"], capture_output=True, check=True, timeout=60).stdout)
    notes = report.pop("notes")
    for changing in ("time", "seconds_since_step"):
        report.pop(changing)
    report["checkpoint"].pop("age_seconds")
    return files | {"report": report}, notes


def damage(path):
    """Inverts a byte in the middle of a file. A second call restores the file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


# Most of these starts are refused late: by one rank alone, or while the state is read.
REFUSED = {
    "seed": (["run.seed=99"], "run.seed"),
    "model": (["model.override.num_hidden_layers=3"], "num_hidden_layers"),
    "ranks": (["parallel.tp=2"], "parallel.tp"),
    "nothing to do": ([], "nothing to do: step 4 of 4 is done"),
    "shorter": (["run.stop_after=2"], "nothing to do: step 4 of 2 is done"),
    "schedule": (["run.stop_after=6", "schedule.kind=constant"], "schedule.continue"),
    "batch": (["batch.global_size=7"], "batch.global_size"),
    "device": (["run.device=cuda"], "cuda"),
    "data": (['data.train=[{path="nowhere"}]'], "nowhere"),
    "data's form": (['data.train=[{path="CHATS"}]'], "chats.jsonl"),
    "resume": (["checkpoint.resume=nowhere"], "nowhere"),
    "checkpoint": ([], "step_00000004"),
}
FOUND_EARLY = {"batch", "resume"}
BY_LAUNCH = {"launched model": "model", "launched nothing to do": "nothing to do"}


@pytest.mark.parametrize("launched", [False, *later(True)])
@pytest.mark.parametrize("refusals", [
    ["model", "nothing to do", "launched nothing to do", "launched model"],
    *later([case for case in REFUSED if case not in ("model", "nothing to do")])])
def test_starts_that_are_refused_leave_a_run_as_it_was(tmp_path, refusals, launched):
    """A run stays as it was, whoever makes the run and the starts, and however they are refused."""
    config = str(write_config(tmp_path))
    (tmp_path / "chats.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    run_dir = tmp_path / "run"
    train = [LONGHAUL, "train", config, "--set", "run.stop_after=4"]
    launch = [LONGHAUL, "launch", "-n", "1", config, "--set", "run.stop_after=4"]

    def start(command, sets=()):
        words = [word.replace("CHATS", str(tmp_path / "chats.jsonl")) for word in sets]
        return subprocess.run([*command, *(w for word in words for w in ("--set", word))],
                              capture_output=True, text=True, timeout=120)

    first = start(launch if launched else train)
    assert first.returncode == 0, first.stderr
    before, notes = left_by(run_dir)
    assert before["report"]["state"] == "done" and not notes
    assert (before["report"]["attempt"], before["report"]["ledger"]["starts"]) == (1, 1)
    told = len((run_dir / "events.jsonl").read_text().splitlines())
    for case in refusals:
        sets, word = REFUSED[BY_LAUNCH.get(case, case)]
        if case == "checkpoint":
            damage(next((run_dir / "checkpoints").glob("step_*/a1_rank_*")))
        refused = start(launch if case in BY_LAUNCH else train, sets)
        if case == "checkpoint":
            damage(next((run_dir / "checkpoints").glob("step_*/a1_rank_*")))
        code = 0 if word.startswith("nothing") else 78
        assert refused.returncode == code, (case, refused.stderr)
        after, notes = left_by(run_dir)
        assert after == before, case
        assert word in refused.stdout + refused.stderr, (case, refused.stderr)
        if case in FOUND_EARLY:
            continue  # before the run's directory was touched
        assert len(notes) == 1 and notes[0].startswith("a start ended before its first step: ")
        assert word in notes[0], (case, notes)
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()[told:]]
    by_train = [case for case in refusals if case not in BY_LAUNCH]
    kinds = [event["event"] for event in events]
    assert kinds.count("refused_start") == len(set(refusals) - FOUND_EARLY)
    assert not {"settings_changed", "start", "end", "failure"} & set(kinds)
    assert by_train != refusals or set(kinds) == {"refused_start"}
    # The run goes on as if there had been no refused starts.
    assert start([*train, "--set", "run.stop_after=5"]).returncode == 0
    after, notes = left_by(run_dir)
    assert not notes and after["report"]["restarts"] == 1 and after["report"]["attempt"] == 2
    newest = run_dir / "checkpoints" / "step_00000005" / "manifest.json"
    assert json.loads(newest.read_text())["attempt"] == 2


def test_watch_shows_memory_and_use_of_a_node_and_its_devices(tmp_path):
    """A fake of NVIDIA's library tells of the devices. It lies where the loader looks first."""
    (tmp_path / "libnvidia-ml.so.1").symlink_to(
        pathlib.Path(LONGHAUL).parents[1] / "longhaul" / "cluster" / "libfake_nvml.so")
    config = write_config(tmp_path)
    run_dir = tmp_path / "run"
    names = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "FAKE_NVML": ""}
    supervised = subprocess.Popen(
        [LONGHAUL, "launch", "-n", "1", str(config), "--set", "run.steps=100000"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=names)
    try:
        node = {}
        begun = time.time()
        # The share of busy processors needs two measurements, a second apart.
        while not node.get("devices") or node["cpu_busy"] < 0 or not node["ranks"]:
            assert time.time() - begun < 60 and supervised.poll() is None, node
            time.sleep(0.1)
            if (run_dir / "status.json").exists():
                node = (figures(run_dir)["nodes"] or [{}])[0]
        assert [device["name"] for device in node["devices"]] == ["0 Fake H100", "1 Fake H100"]
        assert node["devices"][1] == {"name": "1 Fake H100", "memory_used_bytes": 10**9,
                                      "memory_total_bytes": 8 * 10**10, "busy": 0.25}
        assert 0 < node["memory_used_bytes"] < node["memory_total_bytes"]
        assert 0 <= node["cpu_busy"] <= 1
        screen = subprocess.run([LONGHAUL, "watch", run_dir, "--once"], capture_output=True,
                                text=True, timeout=60).stdout
        assert "0 Fake H100 25% 1.0 GB of 80.0 GB (1%)" in screen
    finally:
        supervised.terminate()
        supervised.wait(timeout=30)
