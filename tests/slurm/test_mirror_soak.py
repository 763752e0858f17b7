"""A run goes on from its mirror when its directory is wiped and one of its nodes is lost."""

import shutil

from faults import Supervised, records, reference
from mirror import ClusterStore

STEPS = 60


def curve(run_dir):
    return {record["step"]: (record["loss"], record["grad_norm"], record["lr"])
            for record in records(run_dir)}


def test_a_wiped_run_that_lost_a_node_goes_on_from_the_mirror_bitwise(
        run, cluster, binary, folder, tmp_path):
    undisturbed = reference(run, tmp_path, STEPS)
    store = ClusterStore(cluster)
    try:
        mirror = f'checkpoint.mirror="{store.address("wiped")}"'
        first = Supervised(cluster, binary, folder, mirror, steps=STEPS, env=store.environment())
        first.wait_for_step(25)
        cluster.call("scancel", first.job)
        cluster.wait_for_job(first.job, ("CANCELLED", "COMPLETED", "FAILED"), 60)
        mirrored = store.whole_steps("wiped")
        assert mirrored, "nothing was mirrored"
        shutil.rmtree(folder / "run")
        cluster.nodes["n1"].power_off()
        again = Supervised(cluster, binary, folder, mirror, steps=STEPS, env=store.environment())
        ended = cluster.wait_for_job(
            again.job, ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"], 240)
        assert ended["JobState"] == "COMPLETED", again.tail(ended["JobState"])
        found = curve(folder / "run")
        assert min(found) == mirrored[-1] + 1
        assert sorted(found) == list(range(mirrored[-1] + 1, STEPS + 1))
        assert [found[step] for step in sorted(found)] == undisturbed[mirrored[-1]:]
        assert store.whole_steps("wiped")[-1] == STEPS
    finally:
        store.stop()
