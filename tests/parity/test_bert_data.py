"""BERT shards that h5py has written are packed and read with the values of the source system's
loader, as transformers' BertForPreTraining takes them. Hostile or damaged shards are refused with
what is wrong."""

import json
import random
import subprocess

import h5py
import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForPreTraining

VOCABULARY = 30522
FORMS = {"input_ids": "i4", "input_mask": "i1", "segment_ids": "i1",
         "masked_lm_positions": "i4", "masked_lm_ids": "i4", "next_sentence_labels": "i1"}


def make_arrays(rows, length, predictions, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, length + 1, rows)
    arrays = {
        "input_ids": rng.integers(1, VOCABULARY, (rows, length)),
        "input_mask": np.arange(length)[None, :] < lengths[:, None],
        "segment_ids": rng.integers(0, 2, (rows, length)),
        "masked_lm_positions": np.zeros((rows, predictions), np.int64),
        "masked_lm_ids": rng.integers(1, VOCABULARY, (rows, predictions)),
        "next_sentence_labels": rng.integers(0, 2, rows)}
    for row in range(rows):
        # The number of predictions is every one from none to all.
        count = min(row % (predictions + 1), lengths[row] - 1)
        chosen = rng.choice(np.arange(1, lengths[row]), count, replace=False)
        arrays["masked_lm_positions"][row, :count] = np.sort(chosen)
    return {name: values.astype(FORMS[name]) for name, values in arrays.items()}


def write(path, arrays, **options):
    options.setdefault("compression", "gzip")
    with h5py.File(path, "w", libver=options.pop("libver", None)) as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, **options)
    return path


def batches(run, shards, check=True, **options):
    options = {"vocab_size": VOCABULARY, "seq_len": 128, **options}
    result = run("longhaul_bert_tool", "batches", json.dumps(options), *shards, check=check)
    if not check:
        assert result.returncode == 78, (result.returncode, result.stdout, result.stderr)
        return result.stderr
    return [of_transformers(json.loads(line)) for line in result.stdout.splitlines()]


def of_transformers(batch):
    """The fields of BertForPreTraining, [rows, length], from those of a batch."""
    assert batch["losses"] == ["masked_token", "next_sentence"]
    labels, next_sentence = batch["targets"]
    rows = len(next_sentence)
    shaped = {name: np.array(values).reshape(rows, -1) for name, values in
              [("input_ids", batch["tokens"]), ("token_type_ids", batch["segments"]),
               ("labels", labels), ("position_ids", batch["positions"]),
               ("start", batch["document_start"]), ("end", batch["document_end"])]}
    start, end = shaped.pop("start"), shaped.pop("end")
    places = np.arange(end.shape[1])
    assert not start.any() and (end == end[:, :1]).all() and (shaped["position_ids"] == places).all()
    return {**shaped, "attention_mask": (places < end).astype(np.int64),
            "next_sentence_label": np.array(next_sentence),
            "num_targets": batch["num_targets"], "hash": batch["hash"], "rows": batch["rows"]}


def expected(arrays, rows, max_predictions):
    """The fields that the source system's dataset gives for these rows."""
    labels = np.full(arrays["input_ids"].shape, -100, np.int64)
    for row, positions in enumerate(arrays["masked_lm_positions"]):
        zeros = np.flatnonzero(positions == 0)
        end = zeros[0] if len(zeros) else max_predictions
        labels[row, positions[:end]] = arrays["masked_lm_ids"][row, :end]
    return {"input_ids": arrays["input_ids"][rows],
            "token_type_ids": arrays["segment_ids"][rows],
            "attention_mask": arrays["input_mask"][rows],
            "labels": labels[rows],
            "next_sentence_label": arrays["next_sentence_labels"][rows]}


@pytest.mark.parametrize("length, predictions", [(128, 20), (512, 80)])
@pytest.mark.parametrize("options", [
    {}, {"compression": None}, {"libver": ("v110", "v110")}, {"shuffle": True},
    {"shuffle": True, "fletcher32": True}, {"compression": None, "fletcher32": True}],
    ids=str)
def test_shards_of_h5py_are_read_as_numpy_reads_them(run, tmp_path, length, predictions,
                                                     options):
    arrays = make_arrays(203, length, predictions)
    path = write(tmp_path / "a_training_0.hdf5", arrays, **options)
    read = batches(run, [path], seq_len=length, batch_size=29, batches=7)
    for number, batch in enumerate(read):
        rows = slice(29 * number, 29 * (number + 1))
        for name, values in expected(arrays, rows, predictions).items():
            assert np.array_equal(batch[name], values), (number, name)
        assert batch["rows"] == 203
        assert batch["num_targets"] == [(batch["labels"] >= 0).sum(), 29]


def test_big_endian_values_and_odd_chunks_are_read(run, tmp_path):
    arrays = make_arrays(100, 128, 20)
    path = tmp_path / "a_training_0.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            chunks = (7, 13) if values.ndim == 2 else (11,)
            kind = ">i4" if values.dtype == np.int32 else "i1"
            file.create_dataset(name, data=values.astype(kind), chunks=chunks,
                                compression="gzip", compression_opts=9)
    batch = batches(run, [path], batch_size=100)[0]
    for name, values in expected(arrays, slice(0, 100), 20).items():
        assert np.array_equal(batch[name], values), name


def test_a_batch_is_what_bert_for_pretraining_takes(run, tmp_path):
    """The loss of transformers' model is the mean over each term's targets, which we count,
    whatever values padding has."""
    arrays = make_arrays(24, 128, 20)
    batch = batches(run, [write(tmp_path / "a_training_0.hdf5", arrays)], batch_size=24)[0]
    torch.manual_seed(0)
    model = BertForPreTraining(BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32)).eval()
    counts = batch.pop("num_targets")
    fields = {name: torch.tensor(values) for name, values in batch.items()
              if name not in ("hash", "rows")}
    with torch.no_grad():
        out = model(**fields)
        fields["input_ids"][fields["attention_mask"] == 0] = 7
        again = model(**fields)
    assert torch.equal(out.loss, again.loss)
    masked = fields["labels"] >= 0
    scores = out.prediction_logits[masked].log_softmax(-1)
    tokens = -scores.gather(1, fields["labels"][masked][:, None]).sum() / counts[0]
    pairs = -out.seq_relationship_logits.log_softmax(-1).gather(
        1, fields["next_sentence_label"][:, None]).sum() / counts[1]
    torch.testing.assert_close(out.loss, tokens + pairs)


def test_shards_are_packed_in_the_order_of_their_names(run, tmp_path):
    """A shard for tests does not belong to a directory's data. An epoch of the loader has every row
    once."""
    arrays = [make_arrays(6, 128, 20, seed=number) for number in range(7)]
    for number in reversed(range(7)):
        write(tmp_path / f"wiki_training_{number}.hdf5", arrays[number])
    write(tmp_path / "wiki_test_0.hdf5", make_arrays(6, 128, 20))
    ids = np.concatenate([part["input_ids"] for part in arrays])
    plain = batches(run, [tmp_path], batch_size=42)[0]
    assert np.array_equal(plain["input_ids"], ids)
    mixed = batches(run, [tmp_path], batch_size=42, shuffle=True)[0]
    assert not np.array_equal(mixed["input_ids"], ids)
    assert sorted(mixed["input_ids"].tolist()) == sorted(ids.tolist())


@pytest.mark.parametrize("length", [128, 512])
def test_shards_of_another_length_are_refused_with_both_numbers(run, tmp_path, length):
    path = write(tmp_path / "a_training_0.hdf5", make_arrays(20, length, 20))
    other = {128: 512, 512: 128}[length]
    error = batches(run, [path], seq_len=other, check=False)
    assert f"{path}: its rows have {length} tokens, data.seq_len is {other}" in error


@pytest.mark.parametrize("hole, message", [
    (0, "input_mask leaves out the first token"), (2, "input_mask[3] is 1 after the padding")])
def test_a_mask_with_a_hole_is_refused_with_file_and_row(run, tmp_path, hole, message):
    arrays = make_arrays(50, 128, 20)
    arrays["input_mask"][17, hole] = 0
    path = write(tmp_path / "a_training_0.hdf5", arrays)
    error = batches(run, [path], check=False)
    assert f"{path}: row 17: {message}" in error


def altered(name, change):
    """Returns a function that writes a good shard with one changed dataset, which `change(file,
    values)` makes."""
    def make(path):
        arrays = make_arrays(50, 128, 20)
        values = arrays.pop(name)
        write(path, arrays)
        with h5py.File(path, "a") as file:
            change(file, values)
    return make


def external_link(file, values):
    other = file.filename + ".other"
    with h5py.File(other, "w") as target:
        target["input_ids"] = values
    file["input_ids"] = h5py.ExternalLink(other, "/input_ids")


def soft_link(file, values):
    file["elsewhere"] = values
    file["input_ids"] = h5py.SoftLink("/elsewhere")


def virtual(file, values):
    other = file.filename + ".other"
    with h5py.File(other, "w") as target:
        target["x"] = values
    layout = h5py.VirtualLayout(shape=values.shape, dtype=values.dtype)
    layout[:] = h5py.VirtualSource(other, "x", shape=values.shape)
    file.create_virtual_dataset("input_ids", layout)


def external_storage(file, values):
    file.create_dataset("input_ids", shape=values.shape, dtype="i4",
                        external=[(file.filename + ".raw", 0, values.nbytes)])


def plain(**options):
    return lambda file, values: file.create_dataset("input_ids", data=values, **options)


def typed(kind):
    return lambda file, values: file.create_dataset("input_ids", data=values.astype(kind))


def shaped(shape, dtype="i4", **options):
    return lambda file, _: file.create_dataset("input_ids", shape=shape, dtype=dtype,
                                               **options)


def compound(file, values):
    file.create_dataset("input_ids", data=np.zeros(values.shape, [("a", "i4"), ("b", "i4")]))


def holes(file, values):
    data = file.create_dataset("input_ids", shape=values.shape, dtype="i4", chunks=(10, 128),
                               compression="gzip")
    data[:40] = values[:40]


def unfiltered_chunk(file, values):
    data = file.create_dataset("input_ids", data=values, chunks=(50, 128), compression="gzip")
    data.id.write_direct_chunk((0, 0), values.tobytes(), filter_mask=1)


def foreign_filter(file, values):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((50, 128))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple(values.shape)
    h5py.h5d.create(file.id, b"input_ids", h5py.h5t.STD_I32LE, space, plist)


HOSTILE = {
    "external link": (external_link, "input_ids: an external link"),
    "soft link": (soft_link, "input_ids: a soft link"),
    "virtual": (virtual, "input_ids: a virtual dataset"),
    "external storage": (external_storage, "external storage"),
    "plug-in filter": (foreign_filter, "filter 32015 is not read"),
    "scaleoffset": (plain(scaleoffset=0), "is not read"),
    "int64": (typed("i8"), "integers of 8 bytes, expected signed integers of 4"),
    "float": (typed("f4"), "floating-point"),
    "unsigned": (typed("u4"), "expected signed"),
    "compound": (compound, "a compound"),
    "strings": (lambda f, _: f.create_dataset("input_ids", data=["a"] * 50), "expected signed"),
    "rank 1": (shaped((50,)), "1 dimensions, expected 2"),
    "rank 3": (shaped((50, 128, 1)), "3 dimensions, expected 2"),
    "scalar": (shaped(()), "0 dimensions, expected 2"),
    "group": (lambda f, _: f.create_group("input_ids"), "not a dataset"),
    "missing": (lambda f, _: None, "input_ids: not in the file"),
    "no rows": (shaped((0, 128)), "shape [0, 128]"),
    "fewer rows": (shaped((49, 128), fillvalue=1), "input_ids has 49 rows"),
    "other length": (lambda f, v: f.create_dataset("input_ids", data=v[:, :64]), "shape [50, 128], but [50, 64] would fit"),
    "huge": (shaped((2**40, 128), chunks=(1024, 128), compression="gzip"), "shape ["),
    "large": (shaped((2**27, 128), chunks=(1024, 128), compression="gzip"), "has 134217728 rows"),
    "huge chunk": (shaped((50, 128), chunks=(2**20, 128), maxshape=(None, 128)), "chunks of"),
    "no data": (shaped((50, 128), chunks=(10, 128), compression="gzip"), "chunks are missing"),
    "no contiguous data": (shaped((50, 128)), "0 bytes are stored"),
    "holes": (holes, "chunk at row 40, column 0: not in the file"),
    "filter left out": (unfiltered_chunk, "filters were left out"),
    "negative id": (lambda f, v: f.create_dataset("input_ids", data=v - VOCABULARY),
                    "expected 0 to 30521"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_refused_by_name(run, tmp_path, name):
    change, message = HOSTILE[name]
    path = tmp_path / "bad_training_0.hdf5"
    altered("input_ids", change)(path)
    error = batches(run, [path], check=False)
    assert str(path) in error and message in error, error


@pytest.mark.parametrize("name, value, message", [
    ("input_ids", VOCABULARY, "input_ids[3] is 30522"),
    ("masked_lm_ids", -1, "masked_lm_ids[3] is -1"),
    ("masked_lm_positions", 128, "masked_lm_positions[3] is 128"),
    ("masked_lm_positions", -5, "masked_lm_positions[3] is -5"),
    ("segment_ids", 2, "segment_ids[3] is 2"), ("input_mask", -1, "input_mask[3] is -1")])
def test_values_out_of_range_are_refused_with_their_place(run, tmp_path, name, value, message):
    arrays = make_arrays(50, 128, 20)
    arrays[name][41, 3] = value
    path = write(tmp_path / "bad_training_0.hdf5", arrays)
    error = batches(run, [path], check=False)
    assert str(path) in error and "row 41: " + message in error, error


def test_every_truncation_is_refused(run, tmp_path):
    whole = write(tmp_path / "whole.hdf5", make_arrays(40, 128, 20)).read_bytes()
    path = tmp_path / "cut_training_0.hdf5"
    for size in [0, 7, 8, 95, 96, 500, 2000, len(whole) // 2, len(whole) - 512, len(whole) - 1]:
        path.write_bytes(whole[:size])
        assert str(path) in batches(run, [path], check=False), size


def flipped_bits(run, tmp_path, count, seed):
    """Flips single bits of a shard; returns how many were refused, and how many changed
    what was read: a column of zeros and ones can pass Adler-32, the only checksum that the
    format has. The others mean nothing."""
    good = write(tmp_path / "good_training_0.hdf5", make_arrays(40, 128, 20))
    whole = good.read_bytes()
    options = json.dumps({"vocab_size": VOCABULARY, "seq_len": 128, "batch_size": 40})
    want = json.loads(run("longhaul_bert_tool", "batches", options, good).stdout)
    path = tmp_path / "flipped_training_0.hdf5"
    rng = random.Random(seed)
    refused = passed = 0
    for _ in range(count):
        place = rng.randrange(len(whole))
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        result = run("longhaul_bert_tool", "batches", options, path, check=False)
        if result.returncode == 78:
            assert str(path) in result.stderr, result.stderr
            refused += 1
        else:
            assert result.returncode == 0, (place, result.stderr)
            read = json.loads(result.stdout)
            passed += read["hash"] != want["hash"]
            assert read["tokens"] == want["tokens"], place
            assert read["targets"][0] == want["targets"][0], place
    return refused, passed


def test_a_flipped_bit_is_refused_or_means_nothing(run, tmp_path):
    refused, passed = flipped_bits(run, tmp_path, 80, seed=5)
    assert refused > 25 and passed == 0


def test_plugins_of_the_environment_are_not_loaded(run, tmp_path):
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    marker = tmp_path / "loaded"
    source = tmp_path / "plugin.c"
    source.write_text(
        '#include <stdio.h>\n__attribute__((constructor)) static void f(void) '
        '{ fclose(fopen("%s", "w")); }\n' % marker)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", plugins / "libh5evil.so", source], check=True)
    path = tmp_path / "bad_training_0.hdf5"
    altered("input_ids", foreign_filter)(path)
    options = json.dumps({"vocab_size": VOCABULARY, "seq_len": 128})
    run("longhaul_bert_tool", "batches", options, path, check=False,
        env={"HDF5_PLUGIN_PATH": str(plugins)})
    assert not marker.exists()
