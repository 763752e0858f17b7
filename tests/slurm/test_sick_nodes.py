"""The node that cannot do what the others can is the one that is found at fault, whoever reports
it. A spare takes its place, and no step is lost."""


import pytest
from faults import Supervised, reference, whole_curve

STEPS = 60


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"), STEPS)


def over_quota(binary, folder, node, place):
    """The environment in which files below `place` can be opened on this node, but not written
    to."""
    return {"LD_PRELOAD": str(binary("liblonghaul_fault_files.so")),
            "LONGHAUL_FAULT_HOST": node, "LONGHAUL_FAULT_DIR": str(folder / "run/checkpoints"),
            "LONGHAUL_FAULT": f"fail:op=write:path={place}:error=EDQUOT"}


def test_the_node_that_a_failed_save_names_is_left_out_the_third_time(
        cluster, binary, folder, undisturbed):
    # Only the ranks' data cannot be written: what an agent writes for its check is written well.
    run = Supervised(cluster, binary, folder, steps=STEPS,
                     env=over_quota(binary, folder, "n2", ".safetensors"))
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    faults = run.events("fault")
    assert [(fault["kind"], fault["node"]) for fault in faults] == 3 * [("error", "n2")]
    assert all("Disk quota exceeded" in fault["cause"] for fault in faults), run.tail()
    [entry] = run.excluded()
    assert (entry["node"], entry["kind"]) == ("n2", "faults")


@pytest.mark.soak
def test_a_node_that_can_write_nothing_is_left_out_at_once(cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, steps=STEPS,
                     env=over_quota(binary, folder, "n2", "/"))
    run.finish()
    assert whole_curve(run.dir) == undisturbed
    [entry] = run.excluded()
    assert entry["node"] == "n2" and "cannot be written: Disk quota exceeded" in entry["cause"]
    assert len(run.events("fault")) <= 1, run.tail()


def test_of_two_nodes_that_do_not_reach_each_other_one_is_left_out(
        cluster, binary, folder, undisturbed):
    run = Supervised(cluster, binary, folder, steps=STEPS)
    run.wait_for_step(6)
    one, other = run.other_nodes()[:2]
    try:
        # Messages from `one` do not reach `other`; all other messages arrive.
        cluster.nodes[one].run("ip", "neigh", "replace", cluster.nodes[other].address, "lladdr",
                               "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
        run.finish()
    finally:
        cluster.nodes[one].run("ip", "neigh", "del", cluster.nodes[other].address, "dev", "eth0",
                               check=False)
    assert whole_curve(run.dir) == undisturbed
    [entry] = run.excluded()
    assert entry["node"] in (one, other)
    assert f"{one} and {other} do not reach each other" in entry["cause"], entry
    [fault] = run.events("fault")
    assert (fault["kind"], fault["node"]) == ("node", entry["node"])
