"""What a person gets wrong, or a disk does: a clear error, nothing half written or lost."""

import contextlib
import ctypes.util
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import pytest
from datasets import Dataset
from small_model import TRAINING, documents, make_model, make_tokenizer, write_corpus

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, steps_of, write_config  # noqa: E402

WRONG = 78      # never retried
TEMPORARY = 75  # the same command can succeed later
LATER = [pytest.param(verb, marks=pytest.mark.soak) for verb in ("eval", "generate")]


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    """A sound model, corpus and store, made once."""
    root = tmp_path_factory.mktemp("made")
    make_model(root / "models" / "small")
    write_corpus(root / "corpus")
    run("longhaul", "data", "build", root / "corpus" / "*.txt", "--tokenizer",
        root / "models/small", "--out", root / "data/mine", "--holdout", "20%")
    return root


@pytest.fixture
def root(made, tmp_path):
    """A copy that a test may spoil."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run.toml").write_text(TRAINING)
    return tmp_path


def contents(directory):
    return {str(p.relative_to(directory)): p.read_bytes() if p.is_file() else None
            for p in sorted(directory.rglob("*"))}


def refused(result, *words, code=WRONG):
    """The program ended with this code and one message that holds all the words."""
    error = result.stderr
    assert result.returncode == code, (result.returncode, result.stdout, error)
    assert re.search(r"^longhaul: error: (rank \d+ of \d+: )?\[", error, re.M), error
    assert "[internal]" not in error, error
    for word in words:
        assert str(word) in error, (word, error)


def refused_without_a_trace(run, directory, arguments, *words, code=WRONG):
    """As refused; the directory holds afterwards what it held before."""
    before = contents(directory)
    refused(run("longhaul", *arguments, check=False, cwd=directory), *words, code=code)
    assert contents(directory) == before


def training_refused(run, directory, sets, *words, code=WRONG, ranks=1):
    """As refused; no step was done and no checkpoint begun."""
    sets = [word for key in sets for word in ("--set", key)]
    refused(run("longhaul", "train", "run.toml", *sets, check=False, cwd=directory,
                ranks=ranks), *words, code=code)
    assert not (directory / "runs/mine/metrics.jsonl").exists() or \
        not steps_of(directory / "runs/mine")
    assert list(directory.glob("runs/mine/checkpoints/*")) == []


def shards(directory):
    return sorted(directory.glob("model-*.safetensors"))


def read_header(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


def write_header(path, header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


# --- files that are not there

@pytest.mark.parametrize("arguments,words", [
    (["train", "nowhere.toml"], ["nowhere.toml: no such file", "recipe list"]),
    (["config", "nowhere.toml"], ["nowhere.toml: no such file"]),
    (["eval", "nowhere", "--data", "data/mine"], ["nowhere: no such file or directory"]),
    (["eval", "models/small", "--data", "nowhere"], ["nowhere", "no such"]),
    (["export", "nowhere", "--out", "out"], ["nowhere: no such file or directory"]),
    (["generate", "nowhere", "--prompt", "x"], ["nowhere: no such file or directory"]),
    (["inspect", "nowhere"], ["nowhere: no such file or directory"]),
    (["verify", "nowhere"], ["nowhere: no such file or directory"]),
    (["data", "build", "nowhere/*.txt", "--tokenizer", "models/small", "--out", "out"],
     ["'nowhere/*.txt' matches no file", "'corpus/*.jsonl.gz'"]),
    (["data", "build", "corpus/*.txt", "--tokenizer", "nowhere", "--out", "out"],
     ["nowhere", "o such file"]),
    (["data", "train-tokenizer", "nowhere/*.txt", "--out", "out"],
     ["'nowhere/*.txt' matches no file"]),
], ids=lambda value: "-".join(value[:2]).replace("/", "_") if isinstance(value, list) else None)
def test_a_missing_file_is_named(run, root, arguments, words):
    refused_without_a_trace(run, root, arguments, *words)


@pytest.mark.parametrize("key", [
    'init.weights="nowhere"', 'model.config="nowhere"', 'data.train=[{path="nowhere"}]',
    'data.validation=[{name="x", path=["data/mine-val", "nowhere"]}]'])
def test_a_missing_file_in_a_configuration_is_named(run, root, key):
    training_refused(run, root, [key], "nowhere", "o such file or directory")


@pytest.mark.parametrize("arguments,words", [
    ([], ["no verb", "train", "--help"]),
    (["trian", "run.toml"], ["there is no verb 'trian'", "did you mean 'train'"]),
    (["plan", "run.toml"], ["plan is not available yet", "available: compare, config, data"]),
    (["eval"], ["model is required", "longhaul eval --help"]),
    (["eval", "models/small", "--data", "data/mine", "--frob"], ["--frob"]),
    (["eval", "models/small", "--data", "data/mine", "--micro-size", "0"], ["--micro-size"]),
    (["generate", "models/small", "--prompt", "x", "--dtype", "fp8"], ["fp8", "bf16"]),
    (["export", "models/small", "--out", "out", "--shard-size", "huge"], ["'huge'", "5GB"]),
    (["data", "build", "corpus/*.txt", "--tokenizer", "models/small", "--out", "out",
      "--holdout", "half"], ["--holdout 'half'", "1%"]),
], ids=lambda value: "-".join(value[:1]) if isinstance(value, list) else None)
def test_a_wrong_command_line(run, root, arguments, words):
    refused_without_a_trace(run, root, arguments, *words)


VERBS = ["compare", "config", "data", "data build", "data train-tokenizer", "doctor", "drill",
         "eval", "export", "generate", "import", "inspect", "launch", "recipe", "recipe list",
         "recipe show", "report", "submit", "supervise", "train", "verify", "watch"]


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_every_verb_has_help_with_an_example(run, verb):
    text = run("longhaul", *verb.split(), "--help").stdout
    example = text.split("Example", 1)[1]
    assert f"longhaul {verb.split()[0] if verb else 'train'}" in example


def test_no_verb_is_without_a_test_of_its_help(run):
    text = run("longhaul", "--help").stdout.split("Subcommands:")[1].split("Example")[0]
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ")] == \
        [verb for verb in VERBS if " " not in verb]


# --- weights

@pytest.fixture(params=["train", "export", *LATER])
def reads_weights(request, run):
    """The verbs that read weights refuse a spoilt models/small."""
    def check(root, *words):
        if request.param == "train":
            training_refused(run, root, [], *words)
            return
        arguments = {"eval": ["eval", "models/small", "--data", "data/mine-val",
                              "--seq-len", "64"],
                     "generate": ["generate", "models/small", "--prompt", "x"],
                     "export": ["export", "models/small", "--out", "out"]}[request.param]
        refused_without_a_trace(run, root, arguments, *words)
    return check


def inspect_says(run, root, *words):
    result = run("longhaul", "inspect", root / "models/small", check=False)
    assert result.returncode == WRONG and "NOT complete" in result.stdout
    for word in words:
        assert str(word) in result.stdout, result.stdout


def test_truncated_safetensors(run, reads_weights, root):
    shard = shards(root / "models/small")[1]
    size = shard.stat().st_size
    os.truncate(shard, size - 100)
    words = (shard.name, f"the file at byte {size - 100}", "the file is truncated")
    reads_weights(root, *words)
    inspect_says(run, root, *words)


def test_a_header_length_past_the_end_of_the_file(run, reads_weights, root):
    shard = shards(root / "models/small")[0]
    data = shard.read_bytes()
    shard.write_bytes(struct.pack("<Q", len(data)) + data[8:])
    words = (shard.name, f"the header length is {len(data)}", "truncated")
    reads_weights(root, *words)
    inspect_says(run, root, *words)


def test_a_header_length_of_exabytes(run, root):
    shard = shards(root / "models/small")[0]
    shard.write_bytes(struct.pack("<Q", 2**63) + shard.read_bytes()[8:])
    refused_without_a_trace(run, root, ["export", "models/small", "--out", "out"], shard.name,
                            str(2**63), "more than the limit")


def test_a_tensor_that_stands_twice_in_a_header(run, reads_weights, root):
    shard = shards(root / "models/small")[0]
    header, body = read_header(shard)
    name = next(n for n in header if n != "__metadata__")
    text = json.dumps(header)
    write_header(shard, (text[:-1] + "," + json.dumps({name: header[name]})[1:]).encode(), body)
    reads_weights(root, shard.name, name, "twice")


def test_a_tensor_in_two_shards(run, reads_weights, root):
    first, second = shards(root / "models/small")[:2]
    header, body = read_header(first)
    name = next(n for n in header if n != "__metadata__")
    other, other_body = read_header(second)
    size = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
    other[name] = {**header[name],
                   "data_offsets": [len(other_body), len(other_body) + size]}
    write_header(second, other, other_body + bytes(size))
    reads_weights(root, second.name, name, "into " + first.name)


def test_overlapping_tensors(run, reads_weights, root):
    shard = max(shards(root / "models/small"), key=lambda s: len(read_header(s)[0]))
    header, body = read_header(shard)
    spans = sorted((e["data_offsets"], n) for n, e in header.items() if n != "__metadata__")
    (first_span, first), (span, second) = spans[0], spans[1]
    # The second starts four bytes early and the last bytes belong to nobody.
    header[second]["data_offsets"] = [span[0] - 4, span[1] - 4]
    write_header(shard, header, body)
    reads_weights(root, shard.name, first, second, "overlap")


def test_a_shape_that_is_not_the_configs(run, root):
    path = root / "models/small/config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "intermediate_size": 96}))
    words = ("models/small", "not those of the model's config", "mlp", "[128, 64]", "[96, 64]")
    training_refused(run, root, [], *words)
    refused_without_a_trace(run, root, ["eval", "models/small", "--data", "data/mine-val",
                                        "--seq-len", "64"], *words)


def test_layers_that_the_weights_lack(run, root):
    training_refused(run, root, ["model.override={num_hidden_layers=3}"], "models/small",
                     "missing", "model.layers.2.")


def test_a_dtype_that_holds_no_weights(run, root):
    shard = shards(root / "models/small")[1]
    header, body = read_header(shard)
    name = next(n for n in header if n != "__metadata__")
    header[name]["dtype"] = "I32"
    write_header(shard, header, body)
    words = (name, "I32")
    training_refused(run, root, [], *words)
    refused_without_a_trace(run, root, ["generate", "models/small", "--prompt", "x"], *words)


@pytest.mark.parametrize("place", ["../outside.safetensors", "/etc/passwd", "a/../../x"])
def test_an_index_path_that_leaves_its_directory(run, root, place):
    index = root / "models/small/model.safetensors.index.json"
    shutil.copy(shards(root / "models/small")[0], root / "models/outside.safetensors")
    text = index.read_text().replace(shards(root / "models/small")[0].name, place)
    index.write_text(text)
    words = ("models/small", f"'{place}' leaves its directory", "refused")
    training_refused(run, root, [], *words)
    refused_without_a_trace(run, root, ["export", "models/small", "--out", "out"], *words)
    inspect_says(run, root, "leaves its directory")


def test_a_missing_shard(run, reads_weights, root):
    shard = shards(root / "models/small")[2]
    count = len(shards(root / "models/small"))
    shard.unlink()
    reads_weights(root, "models/small", f"1 of {count} shards are missing: {shard.name}",
                  "copy them")
    inspect_says(run, root, f"missing: {shard.name}")


# --- configuration

def test_an_unknown_key_and_its_nearest_name(run, root):
    text = TRAINING.replace("micro_size = 8", "micro_sise = 8")
    (root / "run.toml").write_text(text)
    line = text.splitlines().index("micro_sise = 8") + 1
    words = (f"run.toml:{line}:1: ", "batch.micro_sise", "micro_size")
    refused_without_a_trace(run, root, ["train", "run.toml"], *words)
    refused_without_a_trace(run, root, ["config", "run.toml"], *words)


def test_an_unknown_key_in_set(run, root):
    refused_without_a_trace(run, root, ["train", "run.toml", "--set", "optimiser.lr=1"],
                            "optimiser", "optimizer")


@pytest.mark.parametrize("key,value", [
    ("run.device_plugin", '"libx.so"'), ("precision.compute", '"fp8"'), ("optimizer.kind", '"lamb"')])
def test_a_key_that_is_not_built_yet(run, root, key, value):
    refused_without_a_trace(run, root, ["train", "run.toml", "--set", f"{key}={value}"],
                            f"{key} = {value} is not available yet", "available: ")


@pytest.mark.parametrize("ranks,global_size,micro_size", [(1, 16, 3), (1, 4, 8), (3, 16, 1)])
def test_a_batch_that_does_not_divide(run, root, ranks, global_size, micro_size):
    training_refused(
        run, root, [f"batch.global_size={global_size}", f"batch.micro_size={micro_size}"],
        "batch.global_size", str(global_size), "batch.micro_size", str(micro_size),
        *([str(ranks)] if ranks > 1 else []), ranks=ranks)


def test_sequences_longer_than_the_models_positions(run, root):
    training_refused(run, root, ["data.seq_len=256"], "data.seq_len", "256",
                     "max_position_embeddings", "128")
    refused_without_a_trace(run, root, ["eval", "models/small", "--data", "data/mine",
                                        "--seq-len", "256"],
                            "256", "128", "max_position_embeddings")
    generate = ["generate", "models/small", "--prompt", "x", "--max-new-tokens", "200"]
    refused_without_a_trace(run, root, generate, "128", "max_position_embeddings")


# --- data

def test_a_token_past_the_vocabulary_of_a_store(run, root):
    make_model(root / "models/narrow", vocab_size=300)
    for path in (root / "models/narrow").glob("*token*"):
        path.unlink()  # so that only the ids can tell
    training_refused(run, root,
                     ['init.weights="models/narrow"', 'model.config="models/narrow"'],
                     "data/mine", "holds token id 599", "300", "made with the model's tokenizer")
    refused_without_a_trace(run, root, ["eval", "models/narrow", "--data", "data/mine",
                                        "--seq-len", "64"], "holds token id 599", "300")


def test_a_token_past_the_vocabulary_at_the_end_of_a_saved_dataset(run, root):
    rows = [[i % 600 for i in range(64)] for _ in range(2000)]
    rows[-1][-1] = 600
    Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * 64] * len(rows),
                       "labels": rows}).save_to_disk(root / "rows")
    training_refused(run, root, ['data.train=[{path="rows"}]', "data.validation=[]"], "rows",
                     "row 1999", "input_ids holds 600", "from 0 to 599")


def test_a_store_made_with_another_tokenizer(run, root):
    make_tokenizer(root / "other", [text.upper() for text in documents()])
    run("longhaul", "data", "build", root / "corpus/*.txt", "--tokenizer", root / "other",
        "--out", root / "data/other")
    words = ("data/other", "made with another tokenizer", "the model's", "build the store again")
    training_refused(run, root, ['data.train=[{path="data/other"}]'], *words)
    training_refused(run, root, ['data.validation=[{name="x", path="data/other"}]'], *words)
    refused_without_a_trace(run, root, ["eval", "models/small", "--data", "data/other",
                                        "--seq-len", "64"], *words)


BUILD = ["data", "build", "bad/*", "--tokenizer", "models/small", "--out", "data/bad",
         "--holdout", "50%"]


@pytest.mark.parametrize("name,data,words", [
    ("a.txt", b"fine\xff", ["bad/a.txt", "invalid UTF-8", "byte 4 (0xff) of the file"]),
    ("a.jsonl", b'{"text":"fine"}\n{"text":"\xc3\x28"}\n',
     ["bad/a.jsonl:2", "invalid UTF-8", "byte 9 (0xc3) of the line", "--bad-records drop"]),
    ("a.jsonl", b'{"text":"fine"}\n{"text":\n', ["bad/a.jsonl:2", "invalid JSON"]),
    ("a.jsonl", b'{"body":"fine"}\n', ["bad/a.jsonl:1", "field missing", "'text'", "'body'"]),
    ("a.txt", b"", ["1 file holds no document with text"]),
    ("a.jsonl", b"\n\n", ["1 file holds no document with text"]),
    ("a.jsonl", b'{"text":""}\n', ["1 file holds no document with text"]),
    ("a.jsonl.gz", gzip.compress(b'{"text":"' + os.urandom(400).hex().encode() + b'"}\n')[:-40],
     ["bad/a.jsonl.gz", "the gzip data ends early", "truncated", "download the file again"]),
    ("a.jsonl.gz", b'{"text":"plain"}\n', ["bad/a.jsonl.gz", "not valid gzip data"]),
], ids=["text", "json_line", "json", "field", "empty_file", "blank_lines", "empty_text",
        "truncated_gzip", "no_gzip"])
def test_a_bad_corpus_makes_no_store(run, root, name, data, words):
    (root / "bad").mkdir()
    (root / "bad" / name).write_bytes(data)
    refused_without_a_trace(run, root, BUILD, *words)


def test_a_bad_file_after_good_ones_makes_no_store_and_keeps_the_old_one(run, root):
    shutil.copytree(root / "corpus", root / "bad")
    shutil.copytree(root / "data/mine", root / "data/bad")
    packed = root / "bad/part-1.jsonl.gz"
    os.truncate(packed, packed.stat().st_size - 20)
    refused_without_a_trace(run, root, [*BUILD, "--force"], "bad/part-1.jsonl.gz", "truncated")


def test_bad_records_are_dropped_only_on_request_and_counted(run, root):
    (root / "bad").mkdir()
    (root / "bad/a.jsonl").write_bytes(b'{"text":"one"}\n{"text":"\xff"}\n{"text":\n{"text":"two"}\n')
    result = run("longhaul", *BUILD[:-2], "--bad-records", "drop", cwd=root)
    assert "left out        1 record: invalid UTF-8" in result.stdout
    assert "left out        1 record: invalid JSON" in result.stdout
    assert "bad/a.jsonl:2 (byte 15)  invalid UTF-8" in result.stdout
    info = json.loads((root / "data/bad/store.json").read_text())
    assert info["documents"] == 2 and sum(info["dropped"].values()) == 2


@pytest.mark.parametrize("file", ["store.json", "tokens_00000.bin", "documents_00000.bin"])
def test_a_truncated_store(run, root, file):
    path = root / "data/mine" / file
    os.truncate(path, path.stat().st_size // 2)
    training_refused(run, root, [], f"data/mine/{file}")


# --- disks

MS_RDONLY, MS_REMOUNT, MNT_DETACH = 1, 32, 2
libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)


class Disk:
    """A file system of its own in memory."""

    def __init__(self, path, size):
        self.path = path
        path.mkdir()
        self._mount(0, size)

    def _mount(self, flags, size):
        if libc.mount(b"tmpfs", str(self.path).encode(), b"tmpfs", flags,
                      f"size={size}".encode()) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def grow(self, size):
        self._mount(MS_REMOUNT, size)

    def freeze(self, size="1m"):
        self._mount(MS_REMOUNT | MS_RDONLY, size)

    def unmount(self):
        libc.umount2(str(self.path).encode(), MNT_DETACH)


@pytest.fixture
def disk(tmp_path):
    with contextlib.ExitStack() as stack:
        def make(size):
            try:
                made = Disk(tmp_path / "disk", size)
            except OSError as error:
                pytest.skip(f"NOT TESTED: full and read-only disks need root to mount a "
                            f"file system ({error})")
            stack.callback(made.unmount)
            return made
        yield make


FULL = ("disk", "No space left on device", "free space", "run the same command again")
READ_ONLY = ("disk", "Read-only file system", "choose a place that can be written")


def test_a_store_on_a_full_disk_leaves_nothing(run, root, disk):
    place = disk("16k")
    arguments = ["data", "build", "corpus/*", "--tokenizer", "models/small", "--out", "disk/d",
                 "--holdout", "20%"]
    refused_without_a_trace(run, root, arguments, *FULL, code=TEMPORARY)
    place.grow("8m")
    run("longhaul", *arguments, cwd=root)
    run("longhaul", "verify", "disk/d", cwd=root)


def test_an_export_on_a_full_disk_leaves_nothing(run, root, disk):
    place = disk("200k")
    arguments = ["export", "models/small", "--out", "disk/hf"]
    refused_without_a_trace(run, root, arguments, *FULL, code=TEMPORARY)
    place.grow("8m")
    run("longhaul", *arguments, cwd=root)
    assert "NOT" not in run("longhaul", "inspect", "disk/hf", cwd=root).stdout


def test_a_run_on_a_full_disk_keeps_its_checkpoints_and_goes_on_later(run, root, disk):
    place = disk("4m")
    sets = ["--set", "checkpoint.every=2", "--set", "checkpoint.keep=0", "--set",
            "run.steps=12", "--set", "run.dir=\"disk/run\""]
    result = run("longhaul", "train", "run.toml", *sets, check=False, cwd=root)
    # A checkpoint or the metrics, whichever was written first.
    refused(result, *FULL, code=TEMPORARY)
    kept = sorted(p.name for p in (root / "disk/run/checkpoints").iterdir())
    assert kept and len(kept) < 6
    for name in kept:  # no half-written directory among them
        run("longhaul", "verify", root / "disk/run/checkpoints" / name)
    place.grow("32m")
    run("longhaul", "train", "run.toml", *sets, cwd=root)
    run("longhaul", "train", "run.toml", *sets, "--set", 'run.dir="whole"', cwd=root)
    assert curve(root / "disk/run") == curve(root / "whole")
    assert len(curve(root / "whole")) == 12


def test_a_read_only_disk(run, root, disk):
    place = disk("1m")
    place.freeze()
    training_refused(run, root, ['run.dir="disk/run"'], *READ_ONLY)
    for arguments in (["export", "models/small", "--out", "disk/hf"],
                      ["data", "build", "corpus/*", "--tokenizer", "models/small", "--out",
                       "disk/d"],
                      ["data", "build", "corpus/*", "--tokenizer", "models/small", "--out",
                       "disk/deeper/d"],
                      ["data", "train-tokenizer", "corpus/*", "--out", "disk/t",
                       "--vocab-size", "300"]):
        refused_without_a_trace(run, root, arguments, *READ_ONLY)


def test_a_run_whose_disk_became_read_only_loses_nothing(run, root, disk):
    place = disk("8m")
    sets = ["--set", "run.dir=\"disk/run\"", "--set", "checkpoint.every=2", "--set",
            "run.steps=6"]
    run("longhaul", "train", "run.toml", *sets, "--set", "run.stop_after=4", cwd=root)
    before = contents(root / "disk/run")
    place.freeze("8m")
    refused(run("longhaul", "train", "run.toml", *sets, check=False, cwd=root), *READ_ONLY)
    assert contents(root / "disk/run") == before


# --- runs

def test_a_refused_resume_leaves_the_run_as_it_was(run, root):
    sets = ["--set", "run.steps=4"]
    run("longhaul", "train", "run.toml", *sets, cwd=root)
    before = contents(root / "runs/mine")
    for change, words in ((["--set", "run.seed=99"], ["run.seed", "1234", "99"]),
                          (["--set", 'data.train=[{path="nowhere"}]'], ["nowhere"])):
        refused(run("longhaul", "train", "run.toml", *sets, *change, check=False, cwd=root),
                *words)
        after = contents(root / "runs/mine")
        for name in before:  # what a start notes down may grow; nothing else may change
            if name not in ("log.txt", "run.lock", "events.jsonl"):
                assert after[name] == before[name], name


def test_the_error_that_ends_a_run_stands_in_its_log_and_events(run, root):
    shards(root / "models/small")[0].unlink()
    training_refused(run, root, [], "1 of 4 shards are missing")
    assert "error: [weights] models/small: 1 of 4 shards are missing" in \
        (root / "runs/mine/log.txt").read_text()
    last = json.loads((root / "runs/mine/events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "failure" and "1 of 4 shards are missing" in last["message"]


def ranks_of(launcher):
    """The process ids of the ranks that this mpirun has started."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == launcher.pid:
                found.append(int(entry.name))
    return found


def alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


TWO_RANKS = ["--set", "run.steps=80", "--set", "checkpoint.every=10", "--set",
             "checkpoint.keep=0"]


@pytest.fixture(scope="module")
def undisturbed(run, tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed")
    run("longhaul", "train", write_config(root, "run"), *TWO_RANKS, ranks=2)
    return curve(root / "run")


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_rank_that_dies_ends_the_others_and_the_run_goes_on(run, binary, tmp_path,
                                                              undisturbed, victim):
    path = write_config(tmp_path, "run")
    command = ["mpirun", "--allow-run-as-root", "-n", "2", "--oversubscribe", "--bind-to",
               "none", binary("longhaul"), "train", str(path), *TWO_RANKS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
    try:
        wait_for(lambda: (tmp_path / "run/checkpoints/step_00000020/manifest.json").exists())
        pids = sorted(ranks_of(process))
        assert len(pids) == 2
        os.kill(pids[victim], signal.SIGKILL)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "signal 9" in error
    wait_for(lambda: not any(alive(pid) for pid in pids), 30)
    assert max(steps_of(tmp_path / "run")) < 80
    run("longhaul", "train", path, *TWO_RANKS, ranks=2)
    assert len(undisturbed) == 80 and curve(tmp_path / "run") == undisturbed
