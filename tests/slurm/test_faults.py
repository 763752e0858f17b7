"""Supervised runs on the cluster live through one fault after the other, with the losses of
an undisturbed run. test_faults_soak.py has every fault alone, test_many_faults_soak.py
hundreds."""

import json

import pytest
from faults import Supervised, reference, strike, whole_curve

STEPS = 220  # a fast machine makes some 30 from one fault to the next
# Faults of processes and of files on the disk. The hang comes last, since it takes longest to be
# noticed.
PROCESSES = ["kill_one_worker", "restart_slurmctld", "kill_workers_of_a_node", "kill_supervisor",
             "damage_newest_checkpoint", "stop_one_worker"]
NODES = ["lose_a_node", "cut_network"]


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"), STEPS)


def test_one_run_lives_through_every_fault_of_processes(cluster, binary, folder, undisturbed):
    supervised = Supervised(cluster, binary, folder, steps=STEPS)
    for seed, fault in enumerate(PROCESSES):
        seconds = strike(supervised, fault, seed)
        print(f"{fault}: {seconds:.1f} s until the next step")
    supervised.finish()
    assert whole_curve(supervised.dir) == undisturbed
    # Slurm's controller was killed, so Slurm may refuse one or two starts more.
    kinds = [event["kind"] for event in supervised.events("fault") if event["kind"] != "launcher"]
    assert sorted(kinds) == ["hang", "killed", "killed", "killed"]
    assert "has not entered" in supervised.events("hang")[0]["verdict"]
    assert "the supervisor ended with 137; starts again" in supervised.log()
    assert "CHECKPOINT DAMAGED" in supervised.log(), supervised.tail()


def test_one_run_lives_through_the_loss_of_nodes(cluster, binary, folder, undisturbed):
    supervised = Supervised(cluster, binary, folder, steps=STEPS, spares=2)
    for seed, fault in enumerate(NODES):
        seconds = strike(supervised, fault, seed)
        print(f"{fault}: {seconds:.1f} s until the next step")
    supervised.finish()
    assert whole_curve(supervised.dir) == undisturbed
    lost = [event["node"] for event in supervised.events("fault")]
    assert [event["kind"] for event in supervised.events("fault")] == ["node", "node"]
    excluded = json.loads((supervised.dir / "excluded_nodes.json").read_text())
    assert [node["node"] for node in excluded] == lost
