"""Directories that Hugging Face datasets writes with save_to_disk are read in place, row by
row as they are, and refused with a clear message where they are not what training needs."""

import json
import random
import struct

import pyarrow as pa
import pytest
import torch
from datasets import Dataset, DatasetDict, Features, LargeList, List, Value

LENGTH = 16
VOCABULARY = 50_000


def make_rows(count, length=LENGTH):
    generator = random.Random(7)
    ids = [[generator.randrange(VOCABULARY) for _ in range(length)] for _ in range(count)]
    return {"input_ids": ids, "attention_mask": [[1] * length for _ in ids],
            "labels": [list(row) for row in ids]}


def features_of(columns, ids="int32", labels="int64", wrap=List, mask="int8"):
    kinds = {"input_ids": wrap(Value(ids)), "attention_mask": wrap(Value(mask)),
             "labels": wrap(Value(labels)), "text": Value("string"), "id": Value("int64")}
    return Features({name: kinds[name] for name in columns})


def save(path, columns, shards=1, **kinds):
    dataset = Dataset.from_dict(columns, features=features_of(columns, **kinds))
    dataset.save_to_disk(path, num_shards=shards)
    return path


def shifted(labels):
    return labels[1:] + [-100]


def read(run, path, length=LENGTH, vocabulary=VOCABULARY, check=True):
    result = run("longhaul_data_tool", path, length, vocabulary, check=check)
    if not check:
        assert result.returncode == 78, result.stderr
        return result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("ids, labels, wrap", [
    ("int32", "int64", List), ("int64", "int64", List), ("int64", "int32", LargeList),
    ("uint16", "int32", lambda value: List(value, length=LENGTH))])
def test_rows_of_several_shards_are_read_as_datasets_reads_them(run, tmp_path, ids, labels,
                                                                wrap):
    columns = make_rows(1000)
    columns["text"] = [f"row {i}" for i in range(1000)]
    columns["id"] = list(range(1000))
    path = save(tmp_path / "saved", columns, shards=3, ids=ids, labels=labels, wrap=wrap)
    assert len(list(path.glob("data-*.arrow"))) == 3
    loaded = Dataset.load_from_disk(path)
    rows = read(run, path)
    assert [row["tokens"] for row in rows] == loaded["input_ids"][:]
    assert [row["targets"] for row in rows] == [shifted(row) for row in loaded["labels"][:]]


def test_input_ids_alone_are_their_own_labels(run, tmp_path):
    ids = make_rows(20)["input_ids"]
    path = save(tmp_path / "saved", {"input_ids": ids})
    assert [row["targets"] for row in read(run, path)] == [shifted(row) for row in ids]


def test_a_selection_that_was_saved_is_read_in_its_own_order(run, tmp_path):
    columns = make_rows(50)
    dataset = Dataset.from_dict(columns, features=features_of(columns))
    picked = dataset.shuffle(seed=3).select(range(11, 30))
    picked.save_to_disk(tmp_path / "saved")
    assert [row["tokens"] for row in read(run, tmp_path / "saved")] == picked["input_ids"][:]


@pytest.mark.parametrize("mask", ["int8", "bool"])
def test_masked_labels_and_padding_are_no_targets(run, tmp_path, mask):
    columns = make_rows(2)
    columns["labels"][0][5] = -100
    columns["attention_mask"][1][10:] = [0] * 6
    rows = read(run, save(tmp_path / "saved", columns, mask=mask))
    assert "real" not in rows[0] and rows[1]["real"] == [1] * 10 + [0] * 6
    expected = shifted(columns["labels"][0])
    assert expected[4] == -100 and rows[0]["targets"] == expected
    assert rows[1]["targets"] == columns["input_ids"][1][1:10] + [-100] * 7


def test_rows_of_another_length_say_which_seq_len_fits(run, tmp_path):
    path = save(tmp_path / "saved", make_rows(10))
    assert "its rows have 16 tokens, data.seq_len is 8; set data.seq_len = 16" in read(
        run, path, length=8, check=False)
    columns = make_rows(10)
    columns = {"input_ids": columns["input_ids"]}
    columns["input_ids"][7] = [1, 2, 3]
    message = read(run, save(tmp_path / "ragged", columns), check=False)
    assert "its rows have 3 to 16 tokens" in message


@pytest.mark.parametrize("change, expected", [
    (lambda c: c["input_ids"][3].__setitem__(2, -5), ": input_ids holds -5, but token ids"),
    (lambda c: c["labels"][3].__setitem__(2, -101), ": labels holds -101"),
    (lambda c: c["input_ids"][3].__setitem__(2, 2**40), f": input_ids holds {2**40}"),
    (lambda c: c["input_ids"][3].__setitem__(2, VOCABULARY),
     ": input_ids holds 50000, but token ids are from 0 to 49999"),
    (lambda c: c["labels"].__setitem__(3, [1]), ": labels has 1 values, but input_ids has 16"),
    (lambda c: c["attention_mask"][3].__setitem__(0, 0), ": attention_mask is not ones"),
    (lambda c: c["input_ids"].__setitem__(3, None), "column 'input_ids' has 1 null rows"),
])
def test_bad_values_are_refused_by_file_and_row(run, tmp_path, change, expected):
    columns = make_rows(6)
    change(columns)
    path = save(tmp_path / "saved", columns, shards=3, ids="int64", labels="int64")
    message = read(run, path, check=False)
    assert expected in message
    if "null" not in expected:
        assert "data-00001-of-00003.arrow: row 1 (row 3 of " in message


def test_a_mask_of_flags_with_a_hole_is_refused(run, tmp_path):
    columns = make_rows(3)
    columns["attention_mask"][1][3] = 0
    assert ": attention_mask is not ones" in read(
        run, save(tmp_path / "saved", columns, mask="bool"), check=False)


def test_the_column_that_is_named_is_read(run, tmp_path):
    """The named column has the ids. Rows of the other column are not read."""
    columns = make_rows(32)
    columns["tokens"] = [[7] * LENGTH for _ in columns["labels"]]
    del columns["labels"]
    features = features_of([name for name in columns if name != "tokens"])
    features["tokens"] = List(Value("int32"))
    Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "saved")

    def batch_of(field):
        return json.loads(run("longhaul_data_tool", tmp_path / "saved", LENGTH, VOCABULARY, 32,
                              field).stdout)["tokens"]

    assert batch_of("tokens") == [7] * 32 * LENGTH
    assert batch_of("input_ids") == sum(columns["input_ids"], [])
    result = run("longhaul_data_tool", tmp_path / "saved", LENGTH, VOCABULARY, 8, "absent",
                 check=False)
    assert result.returncode == 78 and "no column 'absent' (its columns: " in result.stderr


@pytest.mark.parametrize("ids, value", [("uint32", 2**32 - 1), ("uint32", 2**32 - 100),
                                        ("int64", 2**32 + 5)])
def test_ids_that_would_wrap_are_refused(run, tmp_path, ids, value):
    columns = {name: rows for name, rows in make_rows(3).items() if name != "attention_mask"}
    columns["labels"][1][4] = value
    path = save(tmp_path / "labels", columns, ids=ids, labels=ids)
    message = read(run, path, check=False)
    assert "row 1 (row 1 of " in message and f"labels holds {value}," in message
    columns = {"input_ids": columns["labels"]}
    path = save(tmp_path / "ids", columns, ids=ids)
    assert f": input_ids holds {value}, but token ids are from 0 to" in read(run, path,
                                                                             check=False)


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**64 - 100])
def test_an_id_above_int64_is_named_as_it_is(run, tmp_path, value):
    rows = make_rows(3)["input_ids"]
    rows[1][4] = value
    Dataset(pa.table({"input_ids": pa.array(rows, pa.list_(pa.uint64()))})).save_to_disk(
        tmp_path / "saved")
    message = read(run, tmp_path / "saved", check=False)
    assert "row 1 (row 1 of " in message and f": input_ids holds {value}, but" in message


def test_text_without_ids_and_a_dict_of_splits_are_named(run, tmp_path):
    Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(tmp_path / "text")
    assert "no column 'input_ids'" in read(run, tmp_path / "text", check=False)
    columns = make_rows(4)
    DatasetDict({"train": Dataset.from_dict(columns)}).save_to_disk(tmp_path / "splits")
    message = read(run, tmp_path / "splits", check=False)
    assert "name one split inside it" in message and "splits/train" in message
    assert len(read(run, tmp_path / "splits" / "train")) == 4


def test_truncated_and_missing_files_are_refused(run, tmp_path):
    path = save(tmp_path / "saved", make_rows(500), shards=2)
    shard = sorted(path.glob("data-*.arrow"))[1]
    whole = shard.read_bytes()
    # In the last two sizes the end mark is missing, and then the last record batch as well.
    batch = whole.rindex(b"\xff\xff\xff\xff", 0, len(whole) - 8)
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 100, len(whole) - 8, batch):
        shard.write_bytes(whole[:size])
        message = read(run, path, check=False)
        assert shard.name in message, message
    assert "it was cut off" in message
    shard.unlink()
    assert "missing, but state.json names it" in read(run, path, check=False)


def test_flipped_bytes_never_crash(run, tmp_path):
    path = save(tmp_path / "saved", make_rows(60))
    shard = next(path.glob("data-*.arrow"))
    whole = shard.read_bytes()
    generator = random.Random(5)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(4):
            damaged[generator.randrange(min(len(whole), 3000))] = generator.randrange(256)
        shard.write_bytes(bytes(damaged))
        result = run("longhaul_data_tool", path, LENGTH, VOCABULARY, check=False)
        assert result.returncode in (0, 78), result.stderr


@pytest.mark.parametrize("place, value", [(4, 1 << 20), (2, -5), (2, 1 << 20)])
def test_offsets_outside_the_values_are_refused(run, tmp_path, place, value):
    path = save(tmp_path / "saved", {"input_ids": make_rows(4)["input_ids"]})
    shard = next(path.glob("data-*.arrow"))
    offsets = [0, 16, 32, 48, 64]
    whole = shard.read_bytes()
    assert whole.count(struct.pack("<5i", *offsets)) == 1
    changed = list(offsets)
    changed[place] = value
    shard.write_bytes(whole.replace(struct.pack("<5i", *offsets), struct.pack("<5i", *changed)))
    message = read(run, path, check=False)
    assert "not a readable Arrow file" in message or "its rows have" in message


def test_many_directories_are_one_source_in_their_order(run, tmp_path):
    parts = [make_rows(count) for count in (5, 2, 30)]
    for i, columns in enumerate(parts):
        save(tmp_path / f"part_{i}", columns, shards=1 + i // 2)
    rows = read(run, tmp_path / "part_*")
    assert [row["tokens"] for row in rows] == [ids for c in parts for ids in c["input_ids"]]
    (tmp_path / "part_1" / "data-00000-of-00001.arrow").write_bytes(b"")
    assert "part_1/data-00000-of-00001.arrow: not a readable" in read(
        run, tmp_path / "part_*", check=False)
    assert "part_x*: the pattern matches nothing" in read(
        run, tmp_path / "part_x*", check=False)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_columns_are_refused_before_they_are_unpacked(run, tmp_path, codec):
    path = save(tmp_path / "saved", {"input_ids": [[0] * LENGTH] * 4})
    shard = next(path.glob("data-*.arrow"))
    table = pa.table({"input_ids": pa.array([[0] * LENGTH] * 2_000_000,
                                            pa.list_(pa.int64()))})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(str(shard), table.schema, options=options) as writer:
        writer.write_table(table)
    assert shard.stat().st_size < 2**24
    assert "its columns are compressed" in read(run, path, check=False)


def test_training_in_place_sees_what_a_data_loader_gives(run, tmp_path):
    """The expected batches are in the file's order, as a DataLoader gives them with labels that the
    model shifts."""
    columns = make_rows(1203)
    columns["labels"][7][3] = -100
    path = save(tmp_path / "saved", columns, shards=5, ids="int64", labels="int32")
    loader = torch.utils.data.DataLoader(
        Dataset.load_from_disk(path).with_format("torch"), batch_size=8, drop_last=True)
    mine = [json.loads(line) for line in run(
        "longhaul_data_tool", path, LENGTH, VOCABULARY, 8).stdout.splitlines()]
    theirs = list(loader)
    assert len(mine) == len(theirs) == 150
    for batch, expected in zip(mine, theirs):
        assert batch["tokens"] == expected["input_ids"].flatten().tolist()
        ends = torch.full((8, 1), -100)
        shifted_labels = torch.cat([expected["labels"][:, 1:], ends], dim=1)
        assert batch["targets"] == shifted_labels.flatten().tolist()
