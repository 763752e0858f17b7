"""A real training, killed and continued: what watch and report say of it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
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
    # It adds up to what this test's own clock says, start of the process to its end.
    assert abs(sum(seconds.values()) - ledger["seconds"]) < 1e-6
    assert abs(ledger["seconds"] - (ended - begun)) < 0.5
    assert 1.0 <= seconds["restart"] <= 1.0 + (ended - pause) and seconds["idle"] == 0
    assert seconds["compute"] > 0 and seconds["save"] > 0
    assert (seconds["redone"] > 0) == (killed["step"] > resumed)
    assert after["checkpoint"]["step"] == stop


def test_a_start_that_is_refused_leaves_the_run_as_it_was(tmp_path):
    command = [LONGHAUL, "train", str(write_config(tmp_path)), "--set", "run.stop_after=4"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    before = figures(tmp_path / "run")
    refused = subprocess.run([*command, "--set", "run.seed=99"], capture_output=True, timeout=60)
    assert refused.returncode == 78
    after = figures(tmp_path / "run")
    assert (after["state"], after["step"]) == (before["state"], 4) == ("done", 4)
    shown = subprocess.run([LONGHAUL, "watch", tmp_path / "run", "--once"], check=True, text=True,
                           capture_output=True, timeout=60).stdout
    assert "attempt 2 was refused before its first step: [config]" in shown


def test_watch_shows_memory_and_use_of_a_node_and_its_devices(tmp_path):
    """Of NVIDIA's library by the fake one, put where the loader looks first."""
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
        # Processor time needs two looks, a second apart.
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
