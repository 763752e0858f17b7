"""longhaul bench shows what the machine can do, and how far a run's step is from that."""

import json
import subprocess
import sys
import tomllib

import pytest
from programs import SOURCE

sys.path.insert(0, str(SOURCE / "tests" / "resume"))
from runs import write_config  # noqa: E402


@pytest.fixture(scope="module")
def measured(run, tmp_path_factory):
    """The profile that a bench writes, and what it says."""
    directory = tmp_path_factory.mktemp("profile")
    result = run("longhaul", "bench", "--quick", "--device", "cpu", "--json", "--out",
                 directory / "machine.toml", cwd=directory)
    assert sorted(p.name for p in directory.iterdir()) == ["machine.toml"]
    return directory / "machine.toml", result.stdout


@pytest.fixture
def profile(measured):
    return measured[0]


def test_a_machines_rates_have_medians_and_spread(measured):
    machine = json.loads(measured[1])
    rates = {rate["name"]: rate for rate in machine["rates"]}
    for begin in ("product bf16", "product fp32", "weight gradient", "attention forward",
                  "attention and backward", "attention fp32 and backward", "copy through memory"):
        assert any(name.startswith(begin) for name in rates), begin
    for rate in rates.values():
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
    first = machine["rates"][0]
    assert first["to_first"] == 1.0
    products = [r["median"] for n, r in rates.items() if n.startswith("product bf16")]
    assert machine["peak_bf16"] == max(products)


def test_a_run_takes_its_peak_from_a_profile_of_this_machine(run, tmp_path, profile):
    config = write_config(tmp_path)
    train = ("longhaul", "train", config, "--set", f"run.hardware={profile}",
             "--set", "run.threads=0", "--set", "checkpoint.every=0")
    run(*train)
    assert "of run.hardware" in (tmp_path / "run/log.txt").read_text()

    other = tmp_path / "other.toml"
    other.write_text("\n".join('cpu = "Another CPU"' if line.startswith("cpu = ") else line
                               for line in profile.read_text().splitlines()))
    result = run(*train, "--set", f"run.hardware={other}", check=False)
    assert result.returncode == 78
    assert "other.toml was measured on a machine with processor Another CPU" in result.stderr
    assert "longhaul bench --out" in result.stderr


def test_a_runs_step_is_told_cause_by_cause(run, tmp_path, profile):
    config = write_config(tmp_path)
    result = run("longhaul", "bench", config, "--hardware", profile, "--json",
                 "--set", "run.threads=0", cwd=tmp_path)
    told = json.loads(result.stdout.splitlines()[-1])
    causes = {cause["cause"]: cause for cause in told["causes"]}
    assert {"matrix products", "attention", "optimizer and norm",
            "outside of operations"} <= set(causes)
    assert sum(c["seconds"] for c in causes.values()) == pytest.approx(
        told["profiled_seconds"], rel=1e-6)
    assert told["step_seconds"] > 0
    assert told["at_rates"] == pytest.approx(sum(c.get("at_rate", 0) for c in causes.values()))
    products = told["products"]
    assert products and all(p["calls"] > 0 and p["flops"] > 0 for p in products)
    assert sum(p["seconds"] for p in products) <= 1.0001 * causes["matrix products"]["seconds"]
    # The bench saves no checkpoint and leaves no file behind.
    assert not (tmp_path / "run").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "run.toml"]


def test_a_profile_gains_the_products_of_a_runs_experts_and_keeps_what_it_has(run, tmp_path, profile):
    config = write_config(tmp_path)
    model = tmp_path / "model/config.json"
    model.write_text(json.dumps({
        **json.loads(model.read_text()), "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}))
    machine = tmp_path / "machine.toml"
    machine.write_text(profile.read_text() + """
[[rate]]
name = "grouped product bf16 16 rows"
unit = "FLOP"
median = 1.0
[[exchange]]
group = "tp"
operation = "all_gather"
ranks = 8
on_node = 8
bytes_per_s = 3e9
""")
    before = tomllib.loads(machine.read_text())
    shown = run("longhaul", "bench", config, "--steps", "5", "--hardware", machine, "--out",
                tmp_path / "added.toml", "--set", "run.threads=0", cwd=tmp_path).stdout
    after = tomllib.loads((tmp_path / "added.toml").read_text())
    assert after["machine"] == before["machine"] and after["rate"][:-3] == before["rate"][:-1]
    names = [f"grouped product bf16 {rows} rows" for rows in (16, 64, 256)]
    assert [rate["name"] for rate in after["rate"][-3:]] == names
    for rate in after["rate"][-3:]:
        assert 1e6 < rate["low"] <= rate["median"] <= rate["high"] and rate["to_first"] > 0
        assert rate["name"] in shown
    # One rank exchanges nothing.
    assert [one["bytes_per_s"] for one in after["exchange"]] == [3e9]


def test_a_file_that_is_no_profile_is_refused_with_its_place(run, tmp_path):
    config = write_config(tmp_path)
    result = run("longhaul", "train", config, "--set", f"run.hardware={config}", check=False)
    assert result.returncode == 78
    assert "no profile that longhaul bench wrote" in result.stderr


def test_too_few_steps_for_a_figure_are_refused_before_anything_runs():
    for option, wanted in (("--steps", "4 or more"), ("--rounds", "1 or more")):
        refused = subprocess.run(
            [sys.executable, SOURCE / "bench" / "bench_peer_memory.py", "absent", option, "0"],
            capture_output=True, text=True, timeout=60)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
        assert f"error: {option} 0: " in refused.stderr and wanted in refused.stderr
