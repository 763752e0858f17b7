"""What the settings of a supervised run change: it goes on with fewer nodes, from the queue, or
without a sick node, or the platform replaces nodes (a fake of HyperPod's plug-in)."""

import json
import os
import pathlib
import re

import machines
import pytest
from faults import Supervised, reference, strike, whole_curve
from machines import kill_process, wait_until
from runs import curve

STEPS = 60

# This script takes the place of srun. A command with --auto-resume=1 is run again when it fails and
# a node is marked.
PLUG_IN = """#!/bin/bash
words=() resume=
for word in "$@"; do
  if [ "$word" = --auto-resume=1 ]; then resume=1; else words+=("$word"); fi
done
[ -n "$resume" ] || exec {srun} "${{words[@]}}"
for attempt in 1 2; do
  {srun} "${{words[@]}}"
  status=$?
  marked=$(cat {marks}/* 2>/dev/null)
  [ "$status" != 0 ] && [ -n "$marked" ] || exit "$status"
  tell() {{ echo "[Auto Resume] Info: JobID: $SLURM_JOB_ID StepID: 0 $*"; }}
  tell "Initiating communication with cluster agent to diagnose health of nodes"
  tell "Response from cluster agent: JobId=$SLURM_JOB_ID, ResumeAction=RETRYSTEP"
  tell "Job failed - replacing nodes"
  rm -f {marks}/*
  tell "Retrying step. Attempt number: $attempt"
done
exit 1
"""


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"), STEPS)


def losses(values):
    return [loss for loss, _, _ in values]


def ranks_line(run, nodes):
    return [line for line in run.log().splitlines() if line.startswith("ranks 0:")
            and len({word.split(":")[1] for word in line.split() if ":n" in word}) == nodes]


def test_a_run_shrinks_when_no_spare_is_left(cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, 'resilience.on_node_loss="shrink"', steps=STEPS,
                     spares=0)
    strike(run, "lose_a_node", 3)
    run.finish()
    # After the loss of a node sums are added in another order.
    assert losses(curve(run.dir)) == pytest.approx(losses(undisturbed), rel=1e-3)
    # 3 x 2 ranks do not divide the batch of 8: two nodes, two micro batches more.
    assert ranks_line(run, 4) and ranks_line(run, 2), run.tail()
    assert "accumulation 4" in run.log()
    assert cluster.job(run.job)["Restarts"] == "0"


def test_a_run_that_waits_for_its_nodes_goes_on_from_the_queue(cluster, binary, folder,
                                                               undisturbed):
    run = Supervised(cluster, binary, folder, 'resilience.on_node_loss="wait"', steps=STEPS,
                     spares=0)
    strike(run, "lose_a_node", 4)
    run.finish(seconds=300)
    assert whole_curve(run.dir) == undisturbed
    assert cluster.job(run.job)["Restarts"] == "1"
    [requeue] = run.events("requeue")
    assert "node" in requeue["reason"], requeue


def test_a_node_that_a_health_check_finds_sick_is_left_out(cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder,
                     'resilience.health_command="test \\"$(hostname)\\" != n2"', steps=STEPS)
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    sick = [event["node"] for event in run.events("health") if not event["ok"]]
    assert sick[0] == "n2"
    excluded = json.loads((run.dir / "excluded_nodes.json").read_text())
    assert [node["node"] for node in excluded] == ["n2"]
    assert "scontrol update NodeName=n2 State=DRAIN" in run.log()
    assert not any(":n2" in line for line in run.log().splitlines() if line.startswith("ranks "))


def test_a_sick_node_that_was_mended_takes_a_lost_ones_place(cluster, binary, folder,
                                                             undisturbed):
    """When a node is lost no spare is left, but the node that was sick passes its check again."""
    sick = folder / "sick"
    sick.write_text("n2")
    run = Supervised(cluster, binary, folder,
                     f'resilience.health_command="! grep -qx $(hostname) {sick}"', steps=STEPS)
    run.wait_for_step(5)
    sick.unlink()
    strike(run, "lose_a_node", 3)
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    [lost] = [event["node"] for event in run.events("fault") if event["kind"] == "node"]
    [back] = run.events("node_readmitted")
    assert back["node"] == "n2" and back["kind"] == "health" and lost != "n2"
    [entry] = json.loads((run.dir / "excluded_nodes.json").read_text())
    assert entry["node"] == lost and entry["kind"] == "silence"
    assert any(":n2" in line for line in run.log().splitlines() if line.startswith("ranks "))
    assert cluster.job(run.job)["Restarts"] == "0", run.tail()


def test_slurm_is_told_not_to_give_a_sick_node_again(cluster, binary, folder, undisturbed):
    """Without spares the job goes back to the queue, and comes back without the node."""
    run = Supervised(cluster, binary, folder,
                     'resilience.health_command="test \\"$(hostname)\\" != n2"', steps=STEPS,
                     spares=0, options=("--slurm=--exclude=n6",))
    run.finish()
    job = cluster.job(run.job)
    assert job["Restarts"] == "1" and job["ExcNodeList"] == "n[2,6]", run.tail(str(job))
    assert "Slurm leaves out n2, n6" in run.log()
    assert whole_curve(run.dir) == undisturbed


def test_restarts_are_bounded_over_supervisors_and_a_person_is_asked(cluster, binary, folder):
    run = Supervised(cluster, binary, folder, "resilience.max_restarts=2", steps=1000)
    for _ in range(2):
        run.wait_for_step(run.done() + 4)
        strike(run, "kill_one_worker", 5)
    strike(run, "kill_supervisor", 5)
    run.wait_for_step(run.done() + 4)
    kill_process(run.workers()[3][1])
    job = cluster.wait_for_job(run.job, ["FAILED", "COMPLETED", "CANCELLED"], 60)
    assert job["JobState"] == "FAILED" and job["ExitCode"] == "78:0", run.tail(str(job))
    assert job["Restarts"] == "0"
    assert "resilience.max_restarts = 2 are used up by this job; mend" in run.log()


@pytest.fixture
def plug_in(cluster, folder):
    """A directory with an srun that does what HyperPod's plug-in does; marks lie in marks/."""
    marks = folder / "marks"
    marks.mkdir()
    path = folder / "bin"
    path.mkdir()
    srun = cluster.call("which", "srun").stdout.strip()
    (path / "srun").write_text(PLUG_IN.format(srun=srun, marks=marks))
    (path / "srun").chmod(0o755)
    return path


def test_a_platform_replaces_nodes_and_the_supervisor_restarts_processes(
        cluster, binary, folder, undisturbed, plug_in):
    marks = folder / "marks"
    run = Supervised(
        cluster, binary, folder, f'resilience.unhealthy_file="{marks}/mark"', steps=STEPS,
        options=["--auto-resume"], env={"PATH": f"{plug_in}:{os.environ['PATH']}"})
    run.wait_for_step(8)
    kill_process(next(iter(run.workers().values()))[1])
    wait_until(lambda: run.events("restart"), 60, run.tail)
    assert "[Auto Resume]" not in run.log()
    run.wait_for_step(20)
    # The fault follows the guide: a node is marked, and then a process on it dies.
    (marks / "mark").write_text("1")
    kill_process(run.workers()[7][1])
    run.finish()
    log = run.log()
    assert whole_curve(run.dir) == undisturbed
    said = [log.index(line) for line in [
        "is sick: ", "the platform replaces nodes",
        "Initiating communication with cluster agent", "ResumeAction=RETRYSTEP",
        "replacing nodes", "Retrying step. Attempt number: 1"]]
    assert said == sorted(said), log
    # A busy Slurm may refuse one or two starts more.
    kinds = [event["kind"] for event in run.events("fault") if event["kind"] != "launcher"]
    assert kinds == ["killed", "node"]
    assert "node" not in [event["kind"] for event in run.events("restart")]


def test_the_jobs_secret_is_in_no_environment_and_no_list_of_arguments(cluster, binary, folder):
    run = Supervised(cluster, binary, folder, steps=200)
    run.wait_for_step(5)
    seen = set()
    for machine in cluster.nodes.values():
        for pid in machine.processes():
            words = machines.arguments_of(pid)
            try:
                text = b"\0".join(pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
                                  for name in ("environ", "cmdline"))
            except OSError:
                continue  # it has ended
            assert b"CONTROL_SECRET" not in text and not re.search(
                rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", text), (pid, words)
            seen |= {word for word in ("supervise", "agent", "srun") if word in words[:2]}
            seen |= {"rank"} if "rank" in " ".join(words[:1]).split() else set()
    assert seen == {"supervise", "agent", "srun", "rank"}
