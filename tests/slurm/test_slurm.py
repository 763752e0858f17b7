"""longhaul under srun on several machines with Slurm and PMIx, without supervision."""

import json
import random
import shlex

import pytest
from runs import curve, steps_of, write_config

WIDE = ["-N4", "-n8", "--ntasks-per-node=2", "--mpi=pmix"]
RING = {"SLURM_PMIX_FENCE": "ring"}  # what the scripts of submit set; see docs/running.md
TWO_BY_FOUR = ["parallel.tp=2", "batch.micro_size=1"]


def sets(*values):
    return [word for value in values for word in ("--set", value)]


def test_four_nodes_train_bitwise_as_one_machine_does(cluster, binary, run, folder):
    config = write_config(folder)
    layout = sets(*TWO_BY_FOUR)
    done = cluster.call("srun", *WIDE, binary("longhaul"), "train", config, *layout,
                        env=RING)
    assert "finished step 8 of 8" in done.stdout
    run("longhaul", "train", config, *layout, *sets(f'run.dir="{folder / "alone"}"'), ranks=8)
    assert len(curve(folder / "run")) == 8
    assert curve(folder / "run") == curve(folder / "alone")


def test_four_nodes_train_on_their_devices_as_one_machine_does(cluster, binary, run, folder):
    """Messages between devices go through the host, since a device's own messages stay on its
    machine."""
    config = write_config(folder)
    plugin = binary("liblonghaul_software_accelerator.so")
    layout = sets(*TWO_BY_FOUR, "run.steps=3", "batch.global_size=4",
                  'run.device="plugin"', f'run.device_plugin="{plugin}"')
    staged = {"SOFTDEV_NO_COLLECTIVES": "1"}
    cluster.call("srun", "-N4", "-n4", "--mpi=pmix", binary("longhaul"), "train", config, *layout,
                 env=RING | staged | {"SOFTDEV_COUNT": "1"})
    run("longhaul", "train", config, *layout, *sets(f'run.dir="{folder / "alone"}"'), ranks=4,
        env=staged | {"SOFTDEV_COUNT": "4"})
    assert len(curve(folder / "run")) == 3
    assert curve(folder / "run") == curve(folder / "alone")


def test_tasks_without_pmix_are_refused(cluster, binary, folder):
    config = write_config(folder)
    done = cluster.call("srun", "-N2", "-n2", "--mpi=none", binary("longhaul"), "train", config,
                        check=False)
    assert done.returncode == 78
    assert "use srun --mpi=pmix" in done.stderr
    assert not (folder / "run").exists()


@pytest.mark.parametrize("ask", ["kill -USR1 $!", "scancel --signal=TERM $(squeue -h -s -o %i)"],
                         ids=["usr1_to_srun", "term_by_scancel"])
def test_a_signal_that_slurm_passes_on_is_saved_and_ends_with_75(cluster, binary, folder, ask):
    config = write_config(folder)
    script = folder / "go.sh"
    words = ["srun", "-N2", "-n2", "--mpi=pmix", binary("longhaul"), "train", config,
             *sets("run.steps=100000", "checkpoint.every=0")]
    script.write_text(f"""{shlex.join(map(str, words))} &
until [ "$(cat run/metrics.jsonl 2> /dev/null | wc -l)" -ge 5 ]; do sleep 0.1; done
{ask}
wait $!
""")
    done = cluster.call("bash", script, check=False, env=RING, cwd=folder)
    assert done.returncode == 75, done.stdout + done.stderr
    saved = [int(path.parent.name[5:])
             for path in (folder / "run").glob("checkpoints/*/manifest.json")]
    assert saved == [max(steps_of(folder / "run"))]
    assert f"after step {saved[0]}; saved" in (folder / "run" / "log.txt").read_text()


def files_of(store):
    return {path.relative_to(store): path.read_bytes()
            for path in sorted(store.rglob("*")) if path.is_file()}


def write_corpus(folder):
    words = random.Random(5)
    for i in range(12):
        with (folder / f"part-{i:02}.jsonl").open("w") as file:
            for _ in range(words.randint(40, 200)):
                text = " ".join("".join(words.choices("abcdefgh", k=words.randint(1, 9)))
                                for _ in range(words.randint(1, 60)))
                file.write(json.dumps({"text": text}) + "\n")
    return folder


def test_a_build_shared_by_the_nodes_gives_the_bytes_of_one_process(cluster, binary, run, folder):
    corpus = folder / "corpus"
    corpus.mkdir()
    write_corpus(corpus)
    run("longhaul", "data", "train-tokenizer", corpus / "part-00.jsonl", "--out",
        folder / "tokenizer", "--vocab-size", 400)
    build = ["data", "build", f"{corpus}/*.jsonl", "--tokenizer", folder / "tokenizer",
             "--holdout", "5%", "--part-size", "64KB", "--threads", "1"]
    shared = cluster.call("srun", "-N4", "-n8", binary("longhaul"), *build, "--out",
                          folder / "shared")
    run("longhaul", *build, "--out", folder / "alone")
    for suffix in ["", "-val"]:
        one = files_of(folder / f"alone{suffix}")
        assert len(one) > 5
        assert files_of(folder / f"shared{suffix}") == one
    assert not (folder / "shared.building").exists()
    # Only one process prints the result.
    assert shared.stdout.count("documents") == run(
        "longhaul", *build, "--out", folder / "alone").stdout.count("documents")


def test_the_doctor_sees_every_node_and_tries_the_axes(cluster, binary, folder):
    config = write_config(folder)
    done = cluster.call("srun", *WIDE, binary("longhaul"), "doctor", config, *sets(*TWO_BY_FOUR),
                        "--dir", folder, "--quick", "--json", check=False, env=RING)
    assert done.returncode in (0, 1), done.stderr  # a busy machine may fail a time limit
    report = json.loads(done.stdout)
    seen = {node["node"] for node in report["nodes"]}
    assert len(report["nodes"]) == len(seen) == 4 and seen <= set(cluster.nodes)
    assert report["ranks"] == 8
    together = {check["name"]: check["result"] for check in report["together"]}
    for name in ["version", "program", "devices", "clocks", "inside a node", "between nodes",
                 "axis tp", "axis dp", f"shared {folder}"]:
        assert together[name] == "ok", done.stdout
