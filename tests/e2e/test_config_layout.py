"""The numbers that `longhaul config --ranks` gives for a layout are those that `longhaul train`
has."""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "resume"))
import runs  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]

UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
LINE = re.compile(r"model ([\d,]+) parameters .*?, ([\d.]+) (\w+) of weights and gradients, "
                  r"([\d.]+) (\w+) of optimizer state per rank")


@pytest.mark.parametrize("ranks, sets", [
    (1, []),
    (2, ["parallel.zero=2", "precision.compute=bf16", "precision.moments=bf16"]),
    (2, ["parallel.zero=3", "precision.compute=bf16"]),
    (2, ["parallel.tp=2", "parallel.sequence=true", "precision.gradients=bf16"]),
    (2, ["parallel.pp=2", "parallel.zero=0"]),
])
def test_bytes_of_a_rank_and_a_checkpoint_are_those_that_train_has(run, binary, tmp_path, ranks, sets):
    config = runs.write_config(tmp_path, "counted")
    words = [word for one in ["run.steps=4", *sets] for word in ("--set", one)]
    said = subprocess.run([binary("longhaul"), "config", config, "--ranks", str(ranks), "--json",
                           *words], capture_output=True, text=True, check=True, timeout=60)
    layout = json.loads(said.stdout)["layout"]
    first = layout["ranks"][0]
    run("longhaul", "train", config, *words, ranks=ranks)
    _, buffers, buffer_unit, state, state_unit = LINE.search(
        (tmp_path / "counted" / "log.txt").read_text()).groups()
    for counted, held, unit in [
            (first["weight_bytes"] + first["gradient_bytes"], buffers, buffer_unit),
            (first["master_bytes"] + first["moment_bytes"], state, state_unit)]:
        assert f"{counted / UNITS[unit]:.1f}" == held, (first, held, unit)
    saved = 0
    for path in (tmp_path / "counted/checkpoints/step_00000004").glob("*.safetensors"):
        with open(path, "rb") as file:
            saved += path.stat().st_size - 8 - int.from_bytes(file.read(8), "little")
    assert layout["checkpoint_bytes"] == saved


def test_the_tables_of_the_documentation_are_what_config_prints(binary):
    """When figures have changed, the block in docs/layouts.md has to be made anew."""
    page = (ROOT / "docs/layouts.md").read_text()
    (block,) = re.findall(r"^```\n\$ longhaul config (.*?)^```$", page, re.M | re.S)
    command, tables = re.split(r"^(?=#)", block, maxsplit=1, flags=re.M)
    said = subprocess.run([binary("longhaul"), "config", *command.replace("\\\n", " ").split()],
                          cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    printed = re.search(r"^# layout:.*?(?=^# (?:tokens|learning))", said.stdout, re.M | re.S)
    assert tables == printed.group()


def test_messages_of_a_step_are_those_that_train_counts(run, binary, tmp_path):
    """Two runs of different lengths are compared, so that start and end cancel out."""
    counts = []
    for steps in (1, 3):
        path = tmp_path / str(steps)
        path.mkdir()
        config = runs.write_config(path)
        sets = [f"run.steps={steps}", "checkpoint.every=0", "schedule.warmup_steps=0",
                "parallel.tp=2", "parallel.zero=3"]
        words = [word for one in sets for word in ("--set", one)]
        run("longhaul", "train", config, *words, ranks=4)
        events = map(json.loads, (path / "run/events.jsonl").read_text().splitlines())
        (event,) = [e for e in events if e["event"] == "traffic"]
        counts.append(event["sent"])
    said = subprocess.run([binary("longhaul"), "config", config, "--ranks", "4", "--json", *words],
                          capture_output=True, text=True, check=True, timeout=60)
    counted = {}
    for line in json.loads(said.stdout)["layout"]["ranks"][0]["sent"]:
        key = line["group"], line["operation"]
        counted[key] = counted.get(key, 0) + line["bytes"]
    sent = {key: (counts[1][key[0]][key[1]]["bytes"] - counts[0][key[0]][key[1]]["bytes"]) // 2
            for key in counted}
    assert sent == counted
    assert set(counted) >= {("tp", "reduce_scatter"), ("dp", "all_gather"), ("tp", "all_reduce")}


def test_bench_measures_the_exchanges_that_config_counts_and_plan_takes(run, tmp_path):
    config = runs.write_config(tmp_path)
    profile = tmp_path / "machine.toml"
    sets = ["--set", "parallel.tp=2"]
    shown = run("longhaul", "bench", config, "--steps", "5", "--quick", "--out", profile, *sets,
                ranks=2, cwd=tmp_path)
    said = run("longhaul", "config", config, "--ranks", "2", "--json", *sets)
    counted = {(line["group"], line["operation"])
               for line in json.loads(said.stdout)["layout"]["ranks"][0]["sent"]}
    measured = tomllib.loads(profile.read_text())["exchange"]
    assert {(one["group"], one["operation"]) for one in measured} == counted
    assert ("tp", "all_gather") in counted and "tp all_gather" in shown.stdout
    for one in measured:
        assert (one["ranks"], one["on_node"]) == (2, 2)
        assert one["bytes_per_s"] > 0 and one["latency_s"] >= 0

    machine = profile.read_text() + """
[inside]
bytes_per_s = 1e12
[node]
ranks = 2
host_bytes = 1e12
price_per_hour = 1.0
currency = "EUR"
"""
    profile.write_text(re.sub("latency_s = .*", "latency_s = 1.0", machine))
    planned = run("longhaul", "plan", config, "--ranks", "2", "--hardware", profile, "--json", *sets)
    (calls,) = [sum(line["calls"] for line in rank["sent"] if line["kind"] == "tensor")
                for rank in json.loads(planned.stdout)["layout"]["ranks"]]
    (exposed,) = [part["exposed_s"] for part in json.loads(planned.stdout)["step"]["parts"]
                  if part["cause"] == "exchanges over tp"]
    assert calls > 10 and calls < exposed < calls + 1
