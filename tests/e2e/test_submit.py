"""longhaul submit with programs that stand in for Slurm's; the tests of tests/slurm use a real
Slurm."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import write_config  # noqa: E402

SBATCH = """#!/bin/bash
printf '%s\\n' "$@" > "$SEEN/arguments"
cp "${@: -1}" "$SEEN/script"
[ -z "$REFUSES" ] || { echo "sbatch: error: $REFUSES" >&2; exit 1; }
echo 4711
"""


@pytest.fixture
def submit(binary, tmp_path):
    """Runs `longhaul submit` in tmp_path; (the completed process, what sbatch was given)."""
    seen = tmp_path / "seen"
    seen.mkdir()
    (seen / "sbatch").write_text(SBATCH)
    (seen / "sbatch").chmod(0o755)

    def call(*arguments, cwd=tmp_path, **environment):
        for name in ["arguments", "script"]:
            (seen / name).unlink(missing_ok=True)
        done = subprocess.run(
            [binary("longhaul"), "submit", *map(str, arguments)], capture_output=True, text=True,
            cwd=cwd, timeout=60,
            env=dict(os.environ, PATH=f"{seen}:{os.environ['PATH']}", SEEN=str(seen),
                     **environment))
        script = seen / "script"
        return done, script.read_text() if script.exists() else None

    return call


def test_a_run_is_submitted_and_the_user_told_where_to_look(submit, tmp_path):
    write_config(tmp_path)
    done, script = submit("run.toml", "--nodes", 4, "--spares", 1, "--time", "2-0",
                          "--partition", "p5", "--slurm=--account=lab", "--set",
                          "optimizer.lr=1e-3")
    run = tmp_path / "run"
    assert done.returncode == 0, done.stderr
    assert done.stdout == (f"job 4711: 4 nodes train, 1 waits as a spare\n"
                           f"log: {run}/slurm-4711.log\n"
                           f"saves: 300 s before the time limit (no save was measured yet)\n"
                           f"script: {run}/submit.sbatch\n"
                           f"watch: longhaul watch {run}\n")
    assert script == (run / "submit.sbatch").read_text()
    for line in ["#SBATCH --nodes=5", "#SBATCH --partition=p5", "#SBATCH --time=2-0",
                 "#SBATCH --account=lab", "#SBATCH --no-kill", "#SBATCH --requeue",
                 "#SBATCH --job-name=run", f"#SBATCH --chdir={tmp_path}",
                 f"#SBATCH --output={run}/slurm-%j.log", "#SBATCH --signal=B:USR1@300"]:
        assert f"\n{line}\n" in script
    words = script[script.index("supervise=("):].partition(")")[0].split()
    assert words[1:] == ["supervise", f"{tmp_path}/run.toml", "--nodes", "4", "--spares", "1",
                         "--run-dir", f"{tmp_path}/run", "--signal-seconds", "300",
                         "--set", "optimizer.lr=1e-3"]


def test_a_dry_run_prints_the_script_and_does_nothing(submit, tmp_path):
    write_config(tmp_path)
    done, script = submit("run.toml", "--nodes", 2, "--dry-run")
    assert done.returncode == 0 and done.stdout.startswith("#!/bin/bash\n")
    assert script is None and not (tmp_path / "run").exists()


def test_any_verb_is_a_job_of_its_own(submit, tmp_path):
    done, script = submit("--after", 12, "--after", "13,14", "--name", "tokenize", "--nodes", 4,
                          "--", "data", "build", "a b/*.jsonl", "--out", "it's")
    assert done.returncode == 0, done.stderr
    assert f"log: {tmp_path}/tokenize-4711.log" in done.stdout
    assert "#SBATCH --dependency=afterok:12:13:14\n" in script
    assert "data build 'a b/*.jsonl' --out 'it'\\''s')" in script
    assert "--nodes=4 --ntasks=4 " in script
    # A drill starts job steps by itself, so the script starts it once and without srun.
    drill = submit("--dry-run", "--nodes", 3, "--", "drill", "--dir", "d", "--nodes", 3)[0].stdout
    assert "/longhaul drill --dir d --nodes 3)" in drill and "step=(srun" not in drill
    # The name of a verb counts as a verb also where it stands alone.
    assert "verify" in submit("--dry-run", "--", "verify")[0].stdout


def test_the_signal_leaves_the_time_that_a_save_has_taken(submit, tmp_path):
    write_config(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    (run / "events.jsonl").write_text("".join(
        json.dumps({"event": event, "time": 1, "seconds": seconds}) + "\n"
        for event, seconds in [("checkpoint", 80), ("checkpoint", 200.5), ("start", 9999)])
        + "torn {")
    done, script = submit("run.toml", "--nodes", 1)
    assert "\n#SBATCH --signal=B:USR1@662\n" in script
    assert "saves: 662 s before the time limit (the longest save so far took 200.5 s" in done.stdout
    # A time limit that leaves too little time for a save is refused with the reason.
    short = submit("run.toml", "--nodes", 1, "--time", 20)[0]
    assert short.returncode == 78 and "200.5 s" in short.stderr
    (run / "events.jsonl").write_text(json.dumps({"event": "checkpoint", "time": 1,
                                                  "seconds": 2}) + "\n")
    assert "USR1@300\n" in submit("run.toml", "--nodes", 1, "--dry-run")[0].stdout
    assert "USR1@90\n" in submit("run.toml", "--nodes", 1, "--dry-run", "--signal-seconds",
                                 90)[0].stdout


@pytest.mark.parametrize("arguments,words", [
    ([], "name a configuration"),
    (["run.toml"], "--nodes is missing"),
    (["run.toml", "--nodes", "0"], "--nodes"),
    (["missing.toml", "--nodes", "2"], "missing.toml"),
    (["run.toml", "--nodes", "2", "--set", "optimizer.lrr=1"], "optimizer.lrr"),
    (["run.toml", "more", "--nodes", "2"], "behind --"),
    (["run.toml", "--nodes", "2", "--time", "5"], "leaves|give more time"),
    (["run.toml", "--nodes", "2", "--time", "soon"], "soon"),
    (["run.toml", "--nodes", "2", "--after", "x; id"], "x; id"),
    (["run.toml", "--nodes", "2", "--name", "a\nb"], "cannot be written into a batch script"),
    (["run.toml", "--nodes", "2", "--slurm", "account"], "no option of sbatch"),
    (["run.toml", "--nodes", "2", "--slurm", "--x=$(id)"], "cannot be written into a batch script"),
    (["--spares", "1", "--", "verify", "x"], "--spares"),
])
def test_what_is_wrong_is_said_before_anything_is_submitted(submit, tmp_path, arguments, words):
    write_config(tmp_path)
    done, script = submit(*arguments)
    assert done.returncode == 78, done.stdout
    assert done.stderr.startswith("longhaul: error: ")
    assert any(word in done.stderr for word in words.split("|")), done.stderr
    assert script is None and not (tmp_path / "run").exists()


def test_hostile_directory_names_are_quoted_or_refused(submit, tmp_path):
    good = tmp_path / "my 100% work; touch x"
    good.mkdir()
    write_config(good)
    done, script = submit("run.toml", "--nodes", 1, cwd=good)
    assert done.returncode == 0, done.stderr
    assert f'#SBATCH "--output={str(good).replace("%", "%%")}/run/slurm-%j.log"\n' in script
    assert f"'{good}/run.toml'" in script
    assert subprocess.run(["bash", "-n", good / "run" / "submit.sbatch"]).returncode == 0
    bad = tmp_path / 'line\nbreak'
    bad.mkdir()
    (bad / "run.toml").write_text((good / "run.toml").read_text())
    done, script = submit("run.toml", "--nodes", 1, cwd=bad)
    assert done.returncode == 78 and script is None


def test_without_slurm_nothing_is_written_and_it_says_so(binary, tmp_path):
    config = write_config(tmp_path)
    (tmp_path / "empty").mkdir()
    done = subprocess.run([binary("longhaul"), "submit", config, "--nodes", "1"], text=True,
                          capture_output=True, cwd=tmp_path,
                          env=dict(os.environ, PATH=str(tmp_path / "empty")))
    assert done.returncode == 78
    assert done.stderr.startswith("longhaul: error: [submit] there is no sbatch in PATH; ")
    assert not (tmp_path / "run").exists()


def test_a_temporary_directory_that_is_not_there_is_named(submit, tmp_path):
    done, script = submit("--", "verify", "x", TMPDIR=str(tmp_path / "gone"))
    assert done.returncode == 75 and script is None
    assert f"{tmp_path}/gone: no file can be made there" in done.stderr and "set TMPDIR" in done.stderr


def test_what_slurm_refuses_is_passed_on(submit, tmp_path):
    write_config(tmp_path)
    done, _ = submit("run.toml", "--nodes", 2, REFUSES="invalid partition specified: p5")
    assert done.returncode == 75
    assert "invalid partition specified: p5" in done.stderr
    assert "job" not in done.stdout
