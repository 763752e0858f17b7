"""Event files are read back by the tensorboard package."""

import json
import math
import pathlib
import struct
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import write_config  # noqa: E402

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator")


def read(run_dir):
    events = accumulator.EventAccumulator(str(run_dir / "tensorboard"))
    events.Reload()
    return events


def as_float(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def figures(record):
    """The figures of a record of metrics.jsonl by tag. Step and time are fields of the event
    itself."""
    flat = {key: value for key, value in record.items() if key not in ("step", "time", "data_hash")}
    for key in ("source_tokens", "phase_memory_bytes"):
        flat |= {f"{key}/{name}": count for name, count in flat.pop(key, {}).items()}
    return flat


def test_every_step_and_figure_is_read_back(run, tmp_path):
    run("longhaul_events_tool", tmp_path, 300, 1)
    events = read(tmp_path)
    loss = events.Scalars("loss")
    assert [e.step for e in loss] == list(range(1, 301))
    assert [e.value for e in loss] == [as_float(11.76 / s) for s in range(1, 301)]
    assert abs(loss[-1].wall_time - time.time()) < 60
    assert events.Scalars("tokens")[299].value == 300 * 2**33
    assert events.Scalars("validation/wiki/loss")[0].value == as_float(1.652)
    perplexity = events.Scalars("validation/wiki/perplexity")[0]
    assert perplexity.step == 300 and math.isclose(perplexity.value, math.exp(1.652), rel_tol=1e-6)


def test_tags_are_the_keys_of_metrics_jsonl(run, tmp_path):
    run("longhaul_events_tool", tmp_path, 1, 1)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    tags = {t for t in read(tmp_path).Tags()["scalars"] if not t.startswith("validation/")}
    assert tags == set(figures(records[0]))
    assert "source_tokens/wiki" in tags


def test_a_restart_keeps_what_was_written_before(run, tmp_path):
    run("longhaul_events_tool", tmp_path, 3, 1)
    run("longhaul_events_tool", tmp_path, 2, 2)
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    attempts = [e.value for e in read(tmp_path).Scalars("attempt")]
    assert attempts == [2.0] * 2  # what the first start wrote lies in its file
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 7


def test_a_step_that_is_done_again_counts_once(run, tmp_path):
    """Steps are done again after a kill, after a person goes back, and after a start from the
    beginning."""
    run("longhaul_events_tool", tmp_path, 9, 1)
    run("longhaul_events_tool", tmp_path, 8, 2, 6)
    events = read(tmp_path)
    assert [e.step for e in events.Scalars("loss")] == list(range(1, 9))
    assert [e.value for e in events.Scalars("attempt")] == [1.0] * 5 + [2.0] * 3
    assert [e.step for e in events.Scalars("validation/wiki/loss")] == [8]
    run("longhaul_events_tool", tmp_path, 4, 3)
    assert [e.value for e in read(tmp_path).Scalars("attempt")] == [3.0] * 4


def test_records_carry_the_checksums_that_the_format_wants(run, tmp_path):
    # This test reads the checksums itself, since the tensorboard package skips damage silently.
    run("longhaul_events_tool", tmp_path, 5, 1)
    file = next((tmp_path / "tensorboard").iterdir())
    data = bytearray(file.read_bytes())
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
    at = records = 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at:at + 8])
        assert struct.unpack("<I", data[at + 8:at + 12])[0] == masked_crc32c(bytes(data[at:at + 8]))
        body = bytes(data[at + 12:at + 12 + length])
        end = at + 12 + length
        assert struct.unpack("<I", data[end:end + 4])[0] == masked_crc32c(body)
        at = end + 4
        records += 1
    # The records are a version and a beginning, 5 steps of 19 figures, and two of the validation.
    assert records == 2 + 5 * 19 + 2


@pytest.fixture(scope="module")
def trained(run, tmp_path_factory):
    """A training of eight steps in two starts, which saves after steps 4 and 8."""
    folder = tmp_path_factory.mktemp("trained")
    config = write_config(folder)
    run("longhaul", "train", config, "--set", "run.stop_after=4")
    run("longhaul", "train", config, "--set", "checkpoint.every=2")
    return folder / "run"


def records_of(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").open()]


def test_a_training_and_its_restart_read_back_as_metrics_jsonl(trained):
    records = records_of(trained)
    assert [r["step"] for r in records] == list(range(1, 9))
    events = read(trained)
    for key in {key for r in records for key in figures(r)}:
        told = {r["step"]: as_float(figures(r)[key]) for r in records if key in figures(r)}
        assert {e.step: e.value for e in events.Scalars(key) if e.step in told} == told, key
    assert [e.value for e in events.Scalars("attempt")] == [1.0] * 4 + [2.0] * 4


def test_memory_is_told_by_phase(trained):
    """The first step of each start has the memory by phase, and so has the line after each save."""
    first, save = ["weights", "forward", "backward", "update"], ["before_save", "after_save"]
    told = {r["step"]: list(r["phase_memory_bytes"]) for r in records_of(trained)
            if "phase_memory_bytes" in r}
    assert {step: set(names) for step, names in told.items()} == \
        {1: set(first), 5: set(first), 7: set(save)}
    of_end = [json.loads(line) for line in (trained / "events.jsonl").open()]
    of_end = [e for e in of_end if e["event"] == "phase_memory"]
    assert [(e["step"], set(e["phase_memory_bytes"])) for e in of_end] == \
        [(4, set(save)), (8, set(save))]
    resident = records_of(trained)[0]["host_memory_bytes"]
    for record in records_of(trained):
        for name, used in record.get("phase_memory_bytes", {}).items():
            assert resident / 2 < used < resident * 2, name
    saved = read(trained).Scalars("phase_memory_bytes/before_save")
    assert [(e.step, e.value) for e in saved] == [
        (step, as_float(used["before_save"])) for step, used in
        ((4, of_end[0]["phase_memory_bytes"]), (7, records_of(trained)[6]["phase_memory_bytes"]),
         (8, of_end[1]["phase_memory_bytes"]))]


def text_of(events, tag):
    assert events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    found = events.Tensors(tag)
    lines = [e.tensor_proto.string_val[0].decode().splitlines() for e in found]
    assert all(line.startswith("    ") for text in lines for line in text)  # shown as it is
    return [(e.step, [line[4:] for line in text]) for e, text in zip(found, lines)]


def test_settings_and_facts_of_each_start_are_texts(trained):
    events = read(trained)
    assert set(events.Tags()["tensors"]) == {"settings", "start"}
    settings, facts = text_of(events, "settings"), text_of(events, "start")
    assert [step for step, _ in settings] == [step for step, _ in facts] == [0, 4]
    assert settings[1][1] == (trained / "config.toml").read_text().splitlines()
    log = (trained / "log.txt").read_text()
    assert "stop_after = 4" in settings[0][1] and "stop_after = 4" not in settings[1][1]
    for attempt, (_, lines) in enumerate(facts, 1):
        assert f" attempt {attempt}" in lines[0]
        assert any(line.startswith("batch 8 sequences of 32 tokens") for line in lines)
        assert all(line in log for line in lines)


def test_a_variable_of_any_bytes_leaves_texts_readable_and_secrets_stay_out(run, tmp_path):
    config = write_config(tmp_path)
    run("longhaul", "train", config, "--set", "run.stop_after=1",
        env={"NEURON_NAME": "caf\udce9", "NEURON_TOKEN": "hidden"},
        errors="replace")
    ((_, lines),) = text_of(read(tmp_path / "run"), "start")
    assert "environment NEURON_NAME=caf?" in lines
    for file in (tmp_path / "run/tensorboard").iterdir():
        assert b"hidden" not in file.read_bytes()


def test_event_files_lie_where_the_settings_say(run, tmp_path):
    config = write_config(tmp_path)
    place = ["--set", f"log.tensorboard_dir={tmp_path / 'all/curves'}", "--set", "run.stop_after=1"]
    run("longhaul", "train", config, *place)
    assert not (tmp_path / "run/tensorboard").exists()
    events = accumulator.EventAccumulator(str(tmp_path / "all/curves"))
    events.Reload()
    assert [e.step for e in events.Scalars("loss")] == [1]
    assert "of another run" not in (tmp_path / "run/log.txt").read_text()
    run("longhaul", "train", config, *place, "--set", "run.stop_after=2")
    assert "of another run" not in (tmp_path / "run/log.txt").read_text()
    run("longhaul", "train", config, *place, "--set", f"run.dir={tmp_path / 'other'}")
    assert f"{tmp_path / 'all/curves'} has TensorBoard's files of another run" in \
        (tmp_path / "other/log.txt").read_text()
