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
    """A record of metrics.jsonl by tag; step and time are an event's own."""
    flat = {key: value for key, value in record.items() if key not in ("step", "time")}
    sources = flat.pop("source_tokens")
    return flat | {f"source_tokens/{name}": tokens for name, tokens in sources.items()}


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
    """As after a kill, a going back by hand, and a start from the beginning."""
    run("longhaul_events_tool", tmp_path, 9, 1)
    run("longhaul_events_tool", tmp_path, 8, 2, 6)
    events = read(tmp_path)
    assert [e.step for e in events.Scalars("loss")] == list(range(1, 9))
    assert [e.value for e in events.Scalars("attempt")] == [1.0] * 5 + [2.0] * 3
    assert [e.step for e in events.Scalars("validation/wiki/loss")] == [8]
    run("longhaul_events_tool", tmp_path, 4, 3)
    assert [e.value for e in read(tmp_path).Scalars("attempt")] == [3.0] * 4


def test_records_carry_the_checksums_that_the_format_wants(run, tmp_path):
    # The package's own reader skips a damaged file silently; damage must be visible to it.
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
    # Version and begin, 5 steps of 15 figures and one source, two of the validation.
    assert records == 2 + 5 * 19 + 2


def test_a_training_and_its_restart_read_back_as_metrics_jsonl(run, tmp_path):
    config = write_config(tmp_path)
    run("longhaul", "train", config, "--set", "run.stop_after=4")
    run("longhaul", "train", config)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [r["step"] for r in records] == list(range(1, 9))
    events = read(tmp_path / "run")
    for key in figures(records[0]):
        assert [(e.step, e.value) for e in events.Scalars(key)] == \
            [(r["step"], as_float(figures(r)[key])) for r in records], key
    assert [e.value for e in events.Scalars("attempt")] == [1.0] * 4 + [2.0] * 4
