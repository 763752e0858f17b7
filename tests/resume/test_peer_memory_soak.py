"""Many deaths at random moments, each with the memory of a machine: nothing is lost."""

import json
import os
import random
import shutil

import pytest
from runs import MODEL, curve
from test_peer_memory import Cluster

DEATHS = int(os.environ.get("LONGHAUL_SOAK_DEATHS", "25"))
STEPS = 40 * DEATHS
# Large enough for the copy to take a good part of the step.
WIDE = {**MODEL, "vocab_size": 6000, "hidden_size": 192, "num_hidden_layers": 2}


def widen(path):
    (path / "model" / "config.json").write_text(json.dumps(WIDE))


@pytest.mark.parametrize("layout", [["parallel.zero=1"], ["parallel.tp=2"], ["parallel.pp=2"]],
                         ids=["zero1", "tp2", "pp2"])
def test_no_death_loses_more_than_the_step_under_way(run, binary, tmp_path, layout):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    random.seed(seed)
    sets = [*layout, f"run.steps={STEPS}", "checkpoint.every=60", "checkpoint.keep=1",
            "log.tensorboard=false"]
    cluster = Cluster(binary, tmp_path, nodes=4, last=STEPS)
    widen(tmp_path)
    lost = 0
    reached = 0
    for death in range(DEATHS):
        reached = cluster.kill_all(*sets, at=reached + random.randint(2, 12))
        if death > 0:
            assert step_before - 2 <= cluster.resumed()[0] <= step_before + 1
            lost += max(0, step_before - cluster.resumed()[0])
        step_before = reached
        if random.random() < 0.7:
            shutil.rmtree(cluster.memory(random.randrange(4)))
    stop = f"run.stop_after={reached + 3}"
    cluster.train(*sets, stop)
    print(f"{DEATHS} deaths, {lost} steps that were written down were made again")
    whole = tmp_path / "whole"
    whole.mkdir()
    undisturbed = Cluster(binary, whole)
    widen(whole)
    undisturbed.train(*sets, stop, "resilience.peer_memory_every=0")
    assert curve(cluster.run_dir) == curve(undisturbed.run_dir)
