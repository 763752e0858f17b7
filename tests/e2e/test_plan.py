"""`longhaul plan`: what a run takes on a machine that need not be here."""

import json
import re
import sys

import pytest
from programs import SOURCE
from refusals import refused

sys.path.insert(0, str(SOURCE / "tools"))
import predicted_rows  # noqa: E402

MODEL = SOURCE / "tests/fixtures/configs/llama3-70b.json"
MIXTURE = SOURCE / "tests/fixtures/configs/qwen3-30b-a3b.json"
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
    assert "take trn2.48xlarge" in found["comparison_only"]
    text = plan(*words, "--nodes", "16", "--hardware", "trn1.32xlarge").stdout
    assert "comparison only: train does not run on trn1" in text
    assert "a checkpoint: 846.6 GB" in text


def test_the_page_says_of_published_rows_what_plan_predicts(plan):
    page = predicted_rows.PAGE.read_text()
    rows = {row["name"]: row for row in predicted_rows.read_rows()}
    first = rows["Llama-3-70B, 512 cores"]
    found = planned(plan, RECIPE, "--set", f"model.config={MODEL}", "--ranks", "512", "--hardware", "trn1.32xlarge")
    seconds = found["step"]["seconds"]
    assert f"| {predicted_rows.told(first)} | {seconds:.1f} | {seconds / 285.1:.2f} | fits |  |" in page
    # A run with other settings than its recipe's, and another model.
    for name in ("LLMQ, Qwen2.5-7B, one H100", "Llama-3.1-8B, 1,024 cores"):
        predicted = predicted_rows.plan(rows[name])
        value, ratio = predicted_rows.speed(rows[name], predicted)
        assert value * ratio == pytest.approx(rows[name]["published"])
        assert predicted_rows.line(rows[name], predicted).removesuffix("  |  |") in page
    tokens = predicted_rows.plan(rows["LLMQ, Qwen2.5-7B, one H100"])["step"]
    assert tokens["tokens"] == 512 * 1024
    assert value == pytest.approx(1024 / predicted["step"]["seconds"])


def test_the_first_row_of_a_generation_fits_the_others(plan):
    page = predicted_rows.PAGE.read_text()
    rows = [row for row in predicted_rows.read_rows() if row.get("generation") == "RTX 4090, LLMQ"]
    plans = list(map(predicted_rows.plan, rows))
    factors, ratios = predicted_rows.fit(rows, plans)
    (factor,) = factors.values()
    assert predicted_rows.ratio_of(rows[0], factor) == pytest.approx(1, abs=1e-3)
    assert f"- RTX 4090, LLMQ: {factor:.2f}\n" in page
    # One device exchanges nothing, and so all of its step follows from the peaks.
    assert factor == pytest.approx(predicted_rows.speed(rows[0], plans[0])[1], rel=1e-3)
    assert ratios[rows[1]["name"]] * factor == pytest.approx(predicted_rows.speed(rows[1], plans[1])[1])
    for row, planned in zip(rows, plans):
        assert predicted_rows.line(row, planned, ratios) in page


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


def test_spares_are_paid_and_shorten_the_wait_for_a_node(plan):
    words = ("run.toml", "--nodes", "4", "--hardware", "machine.toml", "--failure-hours", "100")
    at_once = planned(plan, *words)
    (one,) = at_once["failures"]
    assert one["spares"] is one["best_spares"] is None
    assert "each lost node is replaced at once" in plan(*words).stdout

    # A node fails every 25 hours, and another one comes after as long a time.
    words += ("--replace-hours", "25")
    (none,) = planned(plan, *words)["failures"]
    assert none["spares"]["spares"] == 0
    assert none["spares"]["waits"] == pytest.approx(1 / 2)
    assert none["goodput"] == pytest.approx(one["goodput"] / 2)
    found = planned(plan, *words, "--spares", "2")
    (two,) = found["failures"]
    # Erlang's formula: two spares are both in use a fifth of the time.
    assert two["spares"]["waits"] == pytest.approx(1 / 16)
    assert two["goodput"] == two["spares"]["goodput"] == pytest.approx(one["goodput"] * 15 / 16)
    assert two["spares"]["goodput_per_paid_node"] == pytest.approx(two["goodput"] * 4 / 6)
    assert two["best_spares"] == none["best_spares"]
    assert two["best_spares"]["spares"] == 1
    assert two["best_spares"]["goodput_per_paid_node"] == pytest.approx(one["goodput"] * 4 / 5 * 4 / 5)
    assert two["best_interval_s"] == one["best_interval_s"]
    assert found["run"]["node_hours"] == pytest.approx(at_once["run"]["node_hours"] * 6 / 4)
    assert found["run"]["kwh"] == at_once["run"]["kwh"]
    text = plan(*words, "--spares", "2").stdout
    assert "runs/a on 32 ranks: 4 nodes of machine.toml, and 2 spares\n" in text
    assert re.search(r"spares: training goes on \d.* after a failure with a spare, 1d 01h without", text)
    shrinks = planned(plan, *words, "--set", "resilience.on_node_loss=shrink")
    assert 'resilience.on_node_loss: spares count as with "spare"' in shrinks["not_checked"]
    refused(plan(*words[:-2], "--spares", "2", check=False), "--spares", "--replace-hours")


def test_uneven_loads_of_experts_take_memory_of_their_own(plan):
    words = ["run.toml", "--nodes", "4", "--hardware", "machine.toml", "--set", f"model.config={MIXTURE}",
             "--set", "parallel.tp=1", "--set", "parallel.ep=8"]
    even = planned(plan, *words)
    found = planned(plan, *words, "--imbalance", "1.5")
    for before, rank in zip(even["memory"]["ranks"], found["memory"]["ranks"]):
        assert "uneven_bytes" not in before
        assert rank["uneven_bytes"] > rank["all_bytes"] == before["all_bytes"]
    assert found["step"] == even["step"]
    assert "experts count at even loads" in plan(*words).stdout
    assert re.search(r"experts at 1\.5 times even loads: activations .* work .* all .*; (.* left|lacks .*)\n",
                     plan(*words, "--imbalance", "1.5").stdout)
    assert "experts" not in plan("run.toml", "--nodes", "4", "--hardware", "machine.toml").stdout
    refused(plan("run.toml", "--nodes", "4", "--hardware", "machine.toml", "--imbalance", "2", check=False),
            "[plan] --imbalance", "has none")


def test_a_mirror_and_data_at_addresses_are_told_and_no_store_is_asked(plan, place):
    words = ["run.toml", "--nodes", "4", "--hardware", "machine.toml", "--set",
             'checkpoint.mirror="s3://bucket/run"', "--set", 'data.train=[{ path = "s3://bucket/wiki" }]']
    (place / "machine.toml").write_text(PROFILE.replace("watts", "store_bytes_per_s = 1e8\nwatts"))
    found = planned(plan, *words)
    storage = found["storage"]
    assert storage["mirror_keep"] == 2
    assert storage["mirror_s"] == pytest.approx(storage["checkpoint_bytes"] / 4 / 1e8)
    assert storage["mirror_s"] > found["failures"][0]["interval_s"]
    assert "copied_bytes" not in storage
    assert "s3://bucket/wiki is an address, looked at by train" in found["not_checked"]
    assert "checkpoint.mirror: whether s3://bucket/run may be written" in found["not_checked"]
    text = plan(*words).stdout
    assert re.search(r"checkpoint\.mirror: 2\.\d+ TB in s3://bucket/run; a copy takes 2\.\d+e\+03 s, "
                     r"longer than from save to save: it leaves some out\n", text)
    assert planned(plan, *words, "--set", "checkpoint.mirror_keep=0")["storage"]["mirror_keep"] == 0
    (place / "machine.toml").write_text(PROFILE)
    assert planned(plan, *words)["storage"]["mirror_s"] is None
    assert "a copy takes not known, the machine has no node.store_bytes_per_s" in plan(*words).stdout


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


def test_products_of_experts_have_their_own_rate_or_a_note_that_they_have_none(plan, place):
    def products(*words):
        found = planned(plan, "run.toml", "--nodes", "1", *words, "--set", f"model.config={MIXTURE}",
                        "--set", "parallel.tp=1")
        [part] = [one for one in found["step"]["parts"] if one["cause"] == "matrix products"]
        return part["exposed_s"], [line for line in found["not_checked"] if "experts" in line]

    rates = "".join(f"""
[[rate]]
name = "grouped product bf16 {rows} rows"
unit = "FLOP"
median = {rate}
""" for rows, rate in ((16, 2e14), (64, 3e14), (256, 4e14)))
    (place / "measured.toml").write_text(PROFILE + rates)
    plain, [note] = products("--hardware", "machine.toml")
    assert "the machine has no rate of grouped products" in note and "longhaul bench" in note
    # 4,096 tokens to 8 of 128 experts each are 256 rows of an expert, and the other products of
    # Qwen3-30B-A3B are at 0.8 of 1 PFLOP/s.
    experts = 6 * 8 * 4096 * 48 * 8 * 3 * 2048 * 768
    measured, notes = products("--hardware", "measured.toml")
    assert notes == []
    assert measured - plain == pytest.approx(experts / 4e14 - experts / 8e14, rel=1e-6)
    # Fewer rows are slower, and the ranks of ep bring theirs together.
    short = ("--hardware", "measured.toml", "--set", "data.seq_len=256")
    assert products(*short)[0] > measured / 16 * 1.2
    assert products(*short, "--set", "parallel.ep=8")[0] < products(*short)[0]
    words = ("run.toml", "--nodes", "1", "--set", f"model.config={MIXTURE}", "--search", "--top", "1")
    assert note in plan(*words, "--hardware", "machine.toml").stdout
    assert planned(plan, *words, "--hardware", "measured.toml")["not_checked"] == []


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_that_comes_along_plans_a_run(plan, machine):
    found = planned(plan, "run.toml", "--nodes", "4", "--price", "1", "--hardware", machine,
                    "--set", "parallel.tp=2", "--set", "batch.global_size=1152")
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


def searched(plan, *words):
    return planned(plan, *words, "--search")


def test_the_first_row_of_a_search_is_what_plan_says_of_that_layout(plan):
    words = ("run.toml", "--nodes", "4", "--hardware", "machine.toml")
    found = searched(plan, *words)
    best = found["best"]
    assert len(best) == 10
    assert [one["seconds"] for one in best] == sorted(one["seconds"] for one in best)
    assert all(one["left_bytes"] >= 0 for one in best)
    first = best[0]["settings"]
    assert first["tp"] * first["pp"] * first["cp"] * first["dp"] == 32
    sets = [f"parallel.{key}={first[key]}" for key in (
        "tp", "pp", "cp", "ep", "pipeline", "virtual_stages", "zero")]
    sets += [f"batch.micro_size={first['micro_size']}", f"memory.recompute={first['recompute']}"]
    if first["zero"]:
        sets.append(f"parallel.shard_group={first['shard_group']}")
    one = planned(plan, *words, *(word for text in sets for word in ("--set", text)))
    assert one["step"]["seconds"] == best[0]["seconds"]
    assert one["step"]["tokens_per_s"] == best[0]["tokens_per_s"]
    assert min(rank["left_bytes"] for rank in one["memory"]["ranks"]) == best[0]["left_bytes"]
    own = planned(plan, *words)
    assert best[0]["seconds"] <= own["step"]["seconds"]
    # Every layout is among the best or loses for a reason.
    assert sum(group["layouts"] for group in found["losers"]) + 10 == found["layouts"]
    reasons = "\n".join(group["reason"] for group in found["losers"])
    assert re.search(r"lacks [\d.]+ [GM]B at least, most of it \w+", reasons)
    assert re.search(r"slower by [\d.]+ % at least: exchanges over tp between nodes", reasons)
    assert "needs a multiple of parallel.pp" in reasons


def test_a_search_tells_lines_for_the_run_file_and_why_layouts_lose(plan, place):
    text = plan("run.toml", "--nodes", "4", "--hardware", "machine.toml", "--search",
                "--top", "2").stdout
    assert len(re.findall(r"^ +[\d.]+ +[\d,]+ +[\d.]+ [MG]B ", text, re.M)) == 2
    block = text.split("the first of them in a run file\n")[1].split("\n\n")[0]
    lines = [line.strip() for line in block.splitlines()]
    assert lines[0] == "[batch]" and "[parallel]" in lines
    own = [line for line in RUN.splitlines() if line != "tp = 8"]
    for section in ("[batch]", "[parallel]"):
        end = lines.index(section) + 1
        more = []
        while end < len(lines) and not lines[end].startswith("["):
            more.append(lines[end])
            end += 1
        own[own.index(section) + 1:own.index(section) + 1] = more
    own += ["[memory]", lines[lines.index("[memory]") + 1]]
    (place / "best.toml").write_text("\n".join(own) + "\n")
    step = planned(plan, "best.toml", "--nodes", "4", "--hardware", "machine.toml")["step"]
    assert f"{step['seconds']:.4g}" in text


def test_a_search_says_what_the_nearest_layout_lacks(plan, place):
    (place / "small.toml").write_text(PROFILE.replace("device_bytes = 80e9", "device_bytes = 2e9"))
    found = searched(plan, "run.toml", "--nodes", "1", "--hardware", "small.toml")
    assert found["best"] == []
    assert found["nearest"]["left_bytes"] < 0
    text = plan("run.toml", "--nodes", "1", "--hardware", "small.toml", "--search").stdout
    assert "no layout fits; the nearest lacks" in text


def test_a_search_finds_the_fewest_nodes_for_a_budget_or_a_date(plan, place):
    words = ("run.toml", "--nodes", "8", "--hardware", "machine.toml")
    whole = searched(plan, *words, "--top", "1")
    money = whole["run"]["money"]
    found = searched(plan, *words, "--top", "1", "--budget", str(money * 1.001))
    assert found["nodes"] <= 8 and found["run"]["money"] <= money * 1.001
    fast = searched(plan, *words, "--top", "1", "--until", "2999-01-01T18:00:00Z")
    assert fast["nodes"] <= found["nodes"]


def test_a_search_tells_that_a_nodes_memory_lacks_room_for_saves(plan, place):
    (place / "narrow.toml").write_text(PROFILE.replace("host_bytes = 2e12", "host_bytes = 2e11"))
    words = ("run.toml", "--hardware", "narrow.toml", "--search", "--top", "1")
    # A quarter of a checkpoint of 846.6 GB is on each of four nodes.
    assert "a node's memory lacks 11.7 GB for saves" in plan(*words, "--nodes", "4").stdout
    assert planned(plan, *words, "--nodes", "8", "--until", "2999-01-01")["nodes"] == 8


@pytest.mark.parametrize("words, said", [
    (("--search", "--until", "2020-01-01"), "this date is past; give a later one"),
    (("--search", "--until", "tomorrow"), "no date; write 2027-03-31"),
    (("--search", "--until", "2027-03-31T-1:30"), "no date; write 2027-03-31"),
    (("--search", "--budget", "5", "--price", "0"), "needs a price of the node; give --price"),
    (("--search", "--budget", "0.01"), "no number of nodes up to 4 suffices: on 4 nodes"),
])
def test_a_search_refuses_what_it_cannot_keep(plan, words, said):
    refused(plan("run.toml", "--nodes", "4", "--hardware", "machine.toml", *words, check=False),
            "[plan]", said)
