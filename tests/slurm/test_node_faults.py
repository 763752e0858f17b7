"""Something that only one node lacks is reported as a fault of that node, whoever notices it first.
The node is left out, a spare takes its place, and no step is lost."""

import json
import random
import subprocess

import pytest
from faults import Supervised, reference, whole_curve
from hard_faults import LACKS, out_of_memory, suspend_and_resume
from machines import kill_process, wait_until

STEPS = 120
OWN_SETTINGS = "run.toml cannot be read any more; the run's own copy of the settings is used"
# The faults come one after the other in one run, each on a node that no earlier one has struck.
IN_ONE_RUN = ["empty_run", "empty_checkpoints", "empty_program", "read_only_checkpoints",
              "memory_full"]


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"), STEPS)


def strike(run, name, node):
    run.wait_for_step(run.done() + 6)
    LACKS[name](run, random.Random(1), node)


def test_a_node_that_lacks_something_is_named_and_replaced(cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, steps=STEPS, spares=2)
    struck = []
    for name in IN_ONE_RUN:
        node = next(n for n in run.other_nodes() if n not in struck)
        strike(run, name, node)
        struck.append(node)
        blamed = run.events("fault")[-1]
        assert (blamed["kind"], blamed["node"]) == ("node", node), (name, blamed, run.tail())
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert set(run.left_out()) <= set(struck)


def test_what_is_not_lacking_costs_no_node_and_a_suspension_is_a_class_of_time(
        cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, steps=STEPS, spares=2)
    node = run.other_nodes()[0]
    strike(run, "read_only_program", node)
    run.wait_for_step(run.done() + 3)
    out_of_memory(run, random.Random(2))
    run.wait_for_step(run.done() + 6)
    suspend_and_resume(run, random.Random(3))
    wait_until(lambda: run.events("suspended"), 60, lambda: run.tail("no suspension is told"))
    (folder / "run.toml").unlink()
    kill_process(run.supervisor()[1])
    run.finish()
    assert OWN_SETTINGS in run.log()
    assert whole_curve(run.dir) == undisturbed
    assert run.left_out() == []
    assert {event["kind"] for event in run.events("fault")} == {"killed"}
    told = [event["seconds"] for event in run.events("suspended")]
    assert len(told) == 1 and 5 < told[0] < 30, run.tail()
    report = subprocess.run([binary("longhaul"), "report", run.dir, "--json"], check=True,
                            capture_output=True, text=True, timeout=60)
    assert json.loads(report.stdout)["ledger"]["by_class"]["suspended"] == pytest.approx(
        told[0], abs=0.1)


@pytest.mark.parametrize("how", [
    "empty_run", pytest.param("read_only_run", marks=pytest.mark.soak)])
def test_a_supervisor_whose_node_lacks_the_run_is_replaced_in_the_job(
        cluster, binary, folder, undisturbed, how):
    run = Supervised(cluster, binary, folder, steps=STEPS, spares=1)
    run.wait_for_step(8)
    node, _ = run.supervisor()
    (folder / "run.toml").unlink()
    cluster.cover(node, run.dir, how == "read_only_run")
    kill_process(next(pid for name, pid in run.workers().values() if name != node))
    wait_until(lambda: node in run.left_out(), 90, lambda: run.tail(f"{node} is not left out"))
    run.wait_for_step(run.done() + 5)
    assert run.events("supervisor_start")[-1]["host"] != node  # its script waits beside it
    assert OWN_SETTINGS in run.log()
    cluster.uncover(node)
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    assert {event["node"] for event in run.events("fault")} <= {node, ""}, run.tail()
