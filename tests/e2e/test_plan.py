"""`longhaul plan`: what a run takes on a machine that need not be here."""

import json
import re

import pytest
from programs import SOURCE
from refusals import refused

MODEL = SOURCE / "tests/fixtures/configs/llama3-70b.json"
RECIPE = SOURCE / "recipes/llama3-70b.toml"
MACHINES = sorted(path.stem for path in (SOURCE / "hardware").glob("*.toml"))

# A small run on a profile of one's own, in which every number is easily told from others.
RUN = f"""[run]
dir = "runs/a"
steps = 1000
[model]
config = "{MODEL}"
[data]
seq_len = 4096
train = [{{ path = "data/train" }}]
[batch]
global_size = 64
[parallel]
tp = 8
[optimizer]
lr = 1e-5
[checkpoint]
every = 100
keep = 2
"""
PROFILE = """[machine]
device = "some GPU"
[peak]
bf16 = 1e15
memory = 3e12
[efficiency]
products = 0.8
attention = 0.4
memory = 0.9
[inside]
bytes_per_s = 4e11
[between]
bytes_per_s = 5e10
[node]
ranks = 8
device_bytes = 80e9
context_bytes = 1e9
host_bytes = 2e12
copy_bytes_per_s = 5e10
disk_bytes_per_s = 1e10
watts = 10000
price_per_hour = 30.0
currency = "EUR"
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "machine.toml").write_text(PROFILE)
    return tmp_path


@pytest.fixture
def plan(run, place):
    return lambda *words, check=True: run("longhaul", "plan", *words, cwd=place, check=check)


def planned(plan, *words):
    return json.loads(plan(*words, "--json").stdout)


def test_the_70b_recipe_on_512_cores(run, plan):
    words = [RECIPE, "--set", f"model.config={MODEL}"]
    found = planned(plan, *words, "--nodes", "16", "--hardware", "trn1.32xlarge")
    assert (found["ranks"], found["nodes"]) == (512, 16)
    # 850 GB are printed in the source's text; `config` says the same.
    assert f"{found['storage']['checkpoint_bytes'] / 1e9:.1f}" == "846.6"
    said = run("longhaul", "config", *words, "--ranks", "512", "--ranks-per-node", "32", "--json",
               "--set", f"run.hardware={SOURCE / 'hardware/trn1.32xlarge.toml'}")
    assert found["layout"] == json.loads(said.stdout)["layout"]
    for one, rank in zip(found["memory"]["ranks"], found["layout"]["ranks"]):
        held = sum(rank[key] for key in (
            "weight_bytes", "gradient_bytes", "master_bytes", "moment_bytes", "whole_weight_bytes",
            "whole_gradient_bytes", "work_bytes"))
        held += rank["activation_bytes"]["total"] + one["token_bytes"] + one["context_bytes"]
        assert one["all_bytes"] == held
        assert one["left_bytes"] == 16 * 2**30 - held
        assert one["token_bytes"] == rank["open_forwards"] * 8192 * 8
    assert 60 < found["step"]["seconds"] < 600
    assert found["step"]["tokens"] == 1024 * 8192
    assert 0.008 < found["step"]["bubble"] < 0.02
    assert "Trainium" in found["comparison_only"]
    text = plan(*words, "--nodes", "16", "--hardware", "trn1.32xlarge").stdout
    assert "comparison only: train has no device of its own for Trainium" in text
    assert "a checkpoint: 846.6 GB" in text


def test_every_number_follows_from_the_others(plan):
    found = planned(plan, "run.toml", "--ranks", "32", "--hardware", "machine.toml",
                    "--failure-hours", "2000", "--restart-s", "60")
    step, storage, run = found["step"], found["storage"], found["run"]
    assert sum(part["exposed_s"] for part in step["parts"]) == pytest.approx(step["seconds"])
    assert step["tokens_per_s"] == pytest.approx(64 * 4096 / step["seconds"])
    assert step["mfu"] > step["mfu_causal"] > 0.1
    assert run["steps"] == 1000
    assert run["tokens"] == 1000 * 64 * 4096
    assert run["seconds"] == pytest.approx(1000 * step["seconds"])
    assert run["node_hours"] == pytest.approx(4 * run["seconds"] / 3600)
    assert run["money"] == pytest.approx(30 * run["node_hours"])
    assert run["currency"] == "EUR"
    assert run["kwh"] == pytest.approx(10 * run["node_hours"])
    bytes_ = storage["checkpoint_bytes"]
    assert storage["write_s"] == pytest.approx(bytes_ / 4e10)
    assert storage["stall_s"] == pytest.approx(bytes_ / 32 / 5e10)
    assert found["memory"]["node"]["save_bytes"] == pytest.approx(bytes_ / 4)
    (failure,) = found["failures"]
    assert failure["between_s"] == pytest.approx(2000 * 3600 / 4)
    assert failure["restart_s"] == pytest.approx(60 + storage["read_s"])
    assert failure["interval_s"] == pytest.approx(100 * step["seconds"])
    assert 0.9 < failure["goodput"] <= failure["best_goodput"] + 1e-4 < 1.0001
    assert failure["run"]["seconds"] == pytest.approx(run["seconds"] / failure["goodput"])


def test_peer_memory_and_the_published_range_of_failures(plan):
    found = planned(plan, "run.toml", "--nodes", "4", "--gpu", "machine.toml",
                    "--set", "resilience.peer_memory_every=5")
    assert [one["node_hours"] for one in found["failures"]] == [1000, 6300]
    node = found["memory"]["node"]
    assert node["peer_bytes"] == pytest.approx(5 * node["save_bytes"])


def test_a_run_that_fails_more_often_than_it_saves_does_not_end(plan):
    words = ("run.toml", "--nodes", "64", "--hardware", "machine.toml", "--failure-hours", "1",
             "--set", "checkpoint.every=0", "--set", "run.steps=1000000", "--set", "batch.global_size=512")
    assert "the run does not end; it fails too often between two saves" in plan(*words).stdout
    [one] = planned(plan, *words)["failures"]
    assert one["goodput"] < 0.01 and "run" not in one


def test_logits_count_as_on_the_machine_whatever_run_device_says(plan):
    def logits(*words):
        found = planned(plan, "run.toml", "--ranks", "8", *words)
        told = [line for line in found["not_checked"] if line.startswith("run.device")]
        return found["layout"]["ranks"][0]["logits_bytes"], told

    # All 4,096 rows of an eighth of the vocabulary in bf16 are less than a device's 1 GiB.
    of_device = 4096 * 128256 // 8 * 2
    gpu, cpu = ("--hardware", "machine.toml"), ("--hardware", "m7i.48xlarge", "--ranks-per-node", "8")
    assert logits(*gpu) == logits(*gpu, "--set", "run.device=cuda") == (of_device, [])
    assert logits(*gpu, "--set", "run.device=cpu") == (
        of_device, ['run.device = "cpu": the plan is that of some GPU'])
    of_cpu, told = logits(*cpu)
    assert of_cpu < of_device / 3 and told == []
    assert logits(*cpu, "--set", "run.device=cuda") == (of_cpu, ['run.device = "cuda": the plan is that of cpu'])


def test_what_is_not_here_is_not_checked(plan):
    text = plan("run.toml", "--nodes", "4", "--hardware", "machine.toml").stdout
    tail = text.split("\nnot checked\n")[1]
    assert "data/train" in tail
    assert "run.dir: runs/a is not on this machine" in tail
    # A rank of a column stands under its head.
    lines = text.splitlines()
    (head,) = [i for i, line in enumerate(lines) if line.startswith("  stage")]
    assert lines[head].index("activations") + len("activations") == \
        re.match(r"(\s+\S+){1}(\s+\S+ \S+){6}", lines[head + 1]).end()


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_that_comes_along_plans_a_run(plan, machine):
    found = planned(plan, "run.toml", "--nodes", "4", "--price", "1", "--hardware", machine,
                    "--set", "parallel.tp=2", "--set", "batch.global_size=576")
    assert found["step"]["seconds"] > 0
    assert found["run"]["money"] == pytest.approx(found["run"]["node_hours"])


def test_an_unknown_machine_names_the_nearest_and_all(plan):
    refused(plan("run.toml", "--nodes", "2", "--hardware", "p5.48xlrge", check=False),
            "[hardware]", "did you mean p5.48xlarge?", *MACHINES)
    refused(plan("run.toml", "--nodes", "2", check=False), "--hardware", *MACHINES)
    refused(plan("run.toml", "--hardware", "p5.48xlarge", check=False), "--ranks N or --nodes N")


@pytest.mark.parametrize("section, words", [
    ("inside", ["link between the ranks of a node", "[inside]"]),
    ("between", ["link between nodes", "[between]"]),
    ("node", ["has no node", "[node] with ranks"]),
    ("peak", ["rate of products in bf16", "peak.bf16"]),
])
def test_a_profile_that_lacks_a_section_says_what_to_add(plan, place, section, words):
    lacking = re.sub(rf"\[{section}\]\n(?:\w.*\n)*", "", PROFILE)
    (place / "lacking.toml").write_text(lacking)
    refused(plan("run.toml", "--nodes", "2", "--hardware", "lacking.toml", check=False),
            "[hardware] ", "lacking.toml", "add ", *words)


def test_a_save_waits_for_the_disk_where_the_copys_rate_is_not_known(plan, place):
    (place / "slow.toml").write_text(PROFILE.replace("copy_bytes_per_s = 5e10\n", ""))
    words = ["run.toml", "--nodes", "2", "--hardware", "slow.toml"]
    storage = planned(plan, *words)["storage"]
    assert storage["stall_s"] == storage["write_s"] > 0
    assert "as long as it takes; the machine has no node.copy_bytes_per_s" in plan(*words).stdout


def test_a_profile_without_a_price(plan, place):
    (place / "free.toml").write_text(PROFILE.replace("price_per_hour = 30.0\n", ""))
    words = ["run.toml", "--nodes", "2", "--hardware", "free.toml"]
    refused(plan(*words, check=False), "node.price_per_hour", "--price")
    assert planned(plan, *words, "--price", "0")["run"]["money"] is None
    assert "not counted" in plan(*words, "--price", "0").stdout


def test_what_train_refuses_is_refused_in_its_words(run, plan, place):
    words = ["--set", "batch.global_size=7"]
    here = plan("run.toml", "--ranks", "32", "--hardware", "machine.toml", *words, check=False)
    there = run("longhaul", "config", "run.toml", "--ranks", "32", *words, cwd=place, check=False)
    refused(here, "batch.global_size")
    assert here.stderr == there.stderr
    refused(plan("run.toml", "--nodes", "4", "--hardware", "machine.toml", "--set",
                 "model.config=elsewhere", check=False), "[plan] elsewhere", "config.json")
