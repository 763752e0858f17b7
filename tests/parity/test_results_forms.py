"""results.json in the forms of other scripts: from the same figures longhaul writes what they
write."""

import collections
import datetime
import json
import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import write_config  # noqa: E402

# 12 steps of 8 sequences, in epochs of 4 steps.
SETTINGS = ["run.steps=12", "data.train=[{synthetic=32}]", "batch.micro_size=2", "run.seed=7"]


def mean_rates(records, global_size, every=1, first=1):
    """Sequences a second at each logged step, over a window of ten steps."""
    window = collections.deque(maxlen=math.ceil(10 / every))
    since, steps, rates = records[0]["time"] - records[0]["step_time_s"], 0, {}
    for record in records:
        steps += 1
        if (record["step"] - first) % every == 0:
            window.append((record["time"] - since, steps))
            since, steps = record["time"], 0
            rates[record["step"]] = (global_size * sum(n for _, n in window) /
                                     sum(seconds for seconds, _ in window))
    return rates


def entry(name, value, units, more, **rest):
    return {"MetricName": name, "MeasuredValue": value, "Units": units,
            "AdditionalData": more} | rest


def final(names, records, rates, left_out, more, minutes, **of_average):
    kept = list(rates.values())[left_out:] or list(rates.values())
    return [entry(names[0], records[-1]["loss"], "", more),
            entry(names[1], minutes, "minutes", more),
            entry(names[2], round(sum(kept) / len(kept), 4), "seq/s", more, **of_average),
            entry(names[3], max(rates.values()), "seq/s", more)]


SPACED = ["Final loss", "Time to train", "Average throughput", "Peak throughput"]
JOINED = ["FinalLoss", "TimeToTrain", "AverageThroughput", "PeakThroughput"]


def trained(run, tmp_path, form, *more):
    """The parameters, the metrics without their timestamps, and the records of a run."""
    config = write_config(tmp_path)
    sets = [word for one in (*SETTINGS, f'log.results="{form}"', *more) for word in ("--set", one)]
    run("longhaul", "train", config, *sets)
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert list(results) == ["results"] and set(results["results"]) == {"parameters", "metrics"}
    metrics = results["results"]["metrics"]
    for one in metrics:
        said = datetime.datetime.fromisoformat(one.pop("Timestamp"))
        assert said.utcoffset() == datetime.timedelta(0)
        assert abs(said.timestamp() - datetime.datetime.now().timestamp()) < 600
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    assert [r["step"] for r in records] == list(range(1, 13))
    return results["results"]["parameters"], metrics, records


def close(found, wanted):
    assert [one["MetricName"] for one in found] == [one["MetricName"] for one in wanted]
    for one, other in zip(found, wanted):
        # A time of day has a resolution of 0.24 us, and a step takes a few ms.
        assert one["MeasuredValue"] == pytest.approx(other["MeasuredValue"], rel=2e-4), one
        assert one | {"MeasuredValue": 0} == other | {"MeasuredValue": 0}


def minutes_of(metrics, name):
    (value,) = [one["MeasuredValue"] for one in metrics if one["MetricName"] == name]
    assert 0 < value < 10 and round(value, 4) == value
    return value


@pytest.mark.parametrize("every", [1, 4])
def test_run_llama_nxd(run, tmp_path, every):
    parameters, metrics, records = trained(run, tmp_path, "nxd", f"log.every={every}")
    assert parameters == {
        "Model": "llama", "World size": 1, "Data parallel degree": 1, "Batch size": 8,
        "Total steps": 12, "Seed": 7, "Warmup steps": 2, "Dataset": "synthetic"}
    rates = mean_rates(records, 8, every)
    close(metrics, final(SPACED, records, rates, math.ceil(10 / every),
                         {"Epoch": 2, "Global step": 12}, minutes_of(metrics, SPACED[1])))
    shown = json.loads(run("longhaul", "watch", tmp_path / "run", "--once", "--json").stdout)
    assert shown["state"] == "done"


def parts(records, rates, places):
    found = []
    for step, more in places:
        at = {"Global step": step, "Microstep": 4 * step} | more
        found += [entry("Loss", records[step - 1]["loss"], "", at),
                  entry("Throughput", rates[step], "seq/s", at)]
    return found


def test_tp_zero1_llama_hf_pretrain(run, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "--cache_dir=x")
    monkeypatch.setenv("XLA_USE_BF16", "1")
    monkeypatch.setenv("NEURON_SECRET_KEY", "hidden")
    parameters, metrics, records = trained(run, tmp_path, "nxd-zero1", "run.stop_after=12")
    variables = parameters.pop("Environment variables")
    assert variables == {"NEURON_CC_FLAGS": "--cache_dir=x", "XLA_USE_BF16": "1"}
    assert parameters.pop("Model configuration").startswith("LlamaConfig {\n  \"architectures\"")
    assert parameters.pop("Optimizer").startswith("AdamW (\nParameter Group 0\n    betas: (0.9, ")
    assert parameters == {
        "Model": "llama", "World size": 1, "Data parallel degree": 1, "Batch size": 2,
        "Total steps": 12, "Seed": 7, "Data type": "torch.bfloat16", "Warmup steps": 2,
        "Gradient accumulation microsteps": 4, "Dataset": "synthetic"}
    rates = mean_rates(records, 8)
    epochs = parts(records, rates, [(4, {"Epoch": 0}), (8, {"Epoch": 1}), (12, {"Epoch": 2})])
    close(metrics, epochs + final(SPACED, records, rates, 10,
                                  {"Epoch": 2, "Global step": 12, "Microstep": 48},
                                  minutes_of(metrics, SPACED[1])))


def test_dp_bert_large_hf_pretrain_hdf5(run, tmp_path):
    parameters, metrics, records = trained(
        run, tmp_path, "bert", 'run.expect={tokens_per_s=320.0, on_miss="warn"}')
    # A source that is no HDF5 counts as one shard.
    assert parameters["Model"] == "model" and parameters["Shards per checkpoint"] == 1
    assert parameters["Sequence length"] == 32 and len(parameters) == 15
    rates = mean_rates(records, 8)
    shards = parts(records, rates, [(step, {"Epoch": epoch, "File index": 1})
                                    for epoch, step in enumerate((4, 8, 12))])
    close(metrics, shards + final(JOINED, records, rates, 0,
                                  {"Epoch": 2, "Global step": 12, "Microstep": 48},
                                  minutes_of(metrics, JOINED[1]), Expected=10.0, Derived=9.5))
