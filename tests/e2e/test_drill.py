"""longhaul drill: faults into small runs of its own, and into a run that trains."""

import json
import os
import pathlib
import pty
import select
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "resume"))
import runs  # noqa: E402

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def drill(binary, *arguments, env=ENVIRONMENT):
    return subprocess.run([binary("longhaul"), "drill", *map(str, arguments)], text=True,
                          capture_output=True, timeout=280, env=env,
                          stdin=subprocess.DEVNULL)


def test_a_killed_rank_and_a_damaged_checkpoint_are_survived_bit_for_bit(binary, tmp_path):
    done = drill(binary, "--dir", tmp_path / "drill", "--steps", 30, "--json",
                 "--faults", "kill-worker,damage-checkpoint,kill-supervisor")
    assert done.returncode == 0, done.stdout + done.stderr
    results = {result["fault"]: result for result in json.loads(done.stdout)}
    assert len(results) == 3
    for result in results.values():
        assert result["survived"] and result["same_losses"], result
        assert result["steps_redone"] >= 0 and result["seconds_to_new_step"] > 0, result
    # The newest checkpoint is damaged, and there is one in five steps, so at least five steps are
    # redone.
    assert results["damage-checkpoint"]["steps_redone"] >= 5
    assert "rank" in results["kill-worker"]["cause"]


@pytest.mark.parametrize("arguments,words", [
    (["--dir", "DIR", "--faults", "kill-everything"], "kill-worker, kill-workers"),
    (["--dir", "DIR", "--faults", "kill-node"], "no fault 'kill-node' here"),
    (["--dir", "DIR", "--nodes", "2"], "this process is in none"),
    (["--dir", "DIR", "--spares", "1"], "give --nodes as well"),
    (["--dir", "DIR", "--fault", "kill-worker"], "--faults for the small"),
    ([], "name either a run"),
    (["RUN", "--dir", "DIR"], "name either a run"),
    (["RUN", "--fault", "kill-worker"], "the rank that it hits"),
    (["RUN", "--rank", "1"], "the rank that it hits"),
    (["RUN", "--fault", "terminate", "--rank", "1"], "kill-worker, stop-worker, kill-node"),
    (["DIR", "--fault", "kill-worker", "--rank", "1"], "is no directory"),
])
def test_what_cannot_be_drilled_is_refused_before_anything_is_done(binary, tmp_path, arguments,
                                                                   words):
    outside = {name: text for name, text in ENVIRONMENT.items() if not name.startswith("SLURM_")}
    names = {"DIR": tmp_path / "drill", "RUN": tmp_path}
    done = drill(binary, *[names.get(word, word) for word in arguments], env=outside)
    assert done.returncode == 78, done.stdout
    assert words in done.stderr
    assert not pathlib.Path(tmp_path / "drill").exists()


class Live:
    """A run under longhaul launch that trains for long enough to be drilled."""

    def __init__(self, binary, tmp_path, *sets):
        self.config = runs.write_config(tmp_path, "live")
        self.dir = tmp_path / "live"
        sets = ("run.steps=100000", "checkpoint.every=50", "checkpoint.keep=2", *sets)
        words = [binary("longhaul"), "launch", "-n", "2", self.config]
        words += [word for one in sets for word in ("--set", one)]
        self.log = open(tmp_path / "live.log", "w")
        self.process = subprocess.Popen(list(map(str, words)), stdout=self.log,
                                        stderr=subprocess.STDOUT, env=ENVIRONMENT)

    def status(self):
        try:
            return json.loads((self.dir / "status.json").read_text())
        except (OSError, ValueError):
            return {}

    def wait(self):
        """Waits until the run trains and has a checkpoint."""
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            status = self.status()
            if (list(self.dir.glob("checkpoints/*/manifest.json")) and status.get("ranks")
                    and status["state"] in ("training", "saving")):
                return self
            time.sleep(0.05)
        raise AssertionError((self.dir.parent / "live.log").read_text())

    def pids(self):
        return {rank["rank"]: rank["pid"] for rank in self.status()["ranks"]}

    def events(self, name):
        lines = (self.dir / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def end(self):
        if self.process.poll() is not None:
            return self.process.returncode
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()
        return self.process.returncode


@pytest.fixture
def live(binary, tmp_path):
    started = []

    def start(*sets):
        started.append(Live(binary, tmp_path, *sets))
        return started[-1].wait()
    yield start
    for one in started:
        one.end()


def test_a_live_run_is_hit_without_asking_and_followed_until_it_is_back(binary, live):
    run = live("resilience.hang_timeout_s=3")
    before = run.pids()
    done = drill(binary, run.config, "--fault", "kill-worker", "--rank", 1, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 1 on" in done.stdout and f"process {before[1]}" in done.stdout
    assert "expect:" in done.stdout and "from the checkpoint of step" in done.stdout
    [fault] = run.events("fault")
    assert (fault["kind"], fault["rank"]) == ("killed", 1)
    assert f"the supervisor said  {fault['cause']}" in done.stdout
    assert "to a new step" in done.stdout

    # The second drill names the same run by its directory, prints JSON, and makes a hang. The run's
    # status is written once a second.
    run.wait()
    done = drill(binary, run.dir, "--fault", "stop-worker", "--rank", 0, "--yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["came_back"] and result["rank"] == 0
    assert "stopped by a signal" in result["cause"]
    assert 0 < result["seconds_to_new_step"] < 60
    assert 0 <= result["steps_redone"] <= result["at_step"]
    assert run.pids()[0] not in (0, before[0])
    assert run.process.poll() is None


@pytest.mark.soak
def test_without_a_yes_or_a_way_back_a_live_run_is_left_alone(binary, live):
    run = live()
    before = run.pids()
    words = [run.dir, "--fault", "kill-worker", "--rank", 0]
    done = drill(binary, *words)
    assert done.returncode == 78 and "--yes" in done.stderr
    for fault in ("kill-node", "mark-unhealthy"):
        refused = drill(binary, run.dir, "--fault", fault, "--rank", 0, "--yes")
        assert refused.returncode == 78 and "one machine" in refused.stderr
    absent = drill(binary, run.dir, "--fault", "kill-worker", "--rank", 2, "--yes")
    assert absent.returncode == 78 and "the run has 2" in absent.stderr
    # The process is not that of the rank, so no signal is sent: a number alone is not enough.
    wrong = drill(binary, run.dir, "--fault", "kill-worker", "--rank", 0, "--on-node",
                  "--process", before[1])
    assert wrong.returncode == 75 and "nothing was sent" in wrong.stderr
    assert not (run.dir / "excluded_nodes.json").exists()

    master, worker = pty.openpty()
    asked = subprocess.Popen([binary("longhaul"), "drill", *map(str, words)], stdin=worker,
                             stdout=worker, stderr=worker, env=ENVIRONMENT)
    os.close(worker)
    said = read_until(master, b"Type yes")
    os.write(master, b"y\n")
    said += read_until(master, b"nothing was done")
    assert asked.wait(timeout=20) == 1
    os.close(master)
    assert run.pids() == before and not run.events("fault")

    assert run.end() == 75
    stopped = drill(binary, *words, "--yes")
    assert stopped.returncode == 78 and "the run is stopped" in stopped.stderr


def read_until(master, text):
    said = b""
    limit = time.monotonic() + 30
    while text not in said:
        assert time.monotonic() < limit, said
        if select.select([master], [], [], 0.1)[0]:
            try:
                said += os.read(master, 4096)
            except OSError:
                raise AssertionError(said) from None
    return said
