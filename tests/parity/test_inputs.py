"""What the readers of inputs give, against Python's json, csv and gzip, pyarrow, zstandard
and datasets.

Run as: LONGHAUL_BIN_DIR=build/bin .venv/bin/python -m pytest tests/parity/test_inputs.py
"""
import base64
import csv
import gzip
import io
import json
import random
import resource
import subprocess

import datasets
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
import zstandard

ALPHABET = 'ab ,;"\n\r\t\\/\'é☃😀\u2028\x00'


def texts(count, seed=7):
    """Documents of odd characters; one in twenty is long."""
    dice = random.Random(seed)
    return ["".join(dice.choices(ALPHABET, k=dice.randrange(1, 40)))
            * (500 if dice.random() < 0.05 else 1) for _ in range(count)]


@pytest.fixture
def read(run):
    """Returns a function that reads all records of inputs, whole and in small parts, which must
    agree."""

    def call(*arguments):
        whole = run("longhaul_records_tool", *arguments).stdout
        parts = run("longhaul_records_tool", "--parts", 20_000, *arguments).stdout
        assert whole == parts
        return [json.loads(line) for line in whole.split("\n") if line]

    return call


def only_texts(records):
    assert all("text" in record for record in records), records[:3]
    return [record["text"] for record in records]


def test_json_lines_have_the_texts_and_places_of_pythons_json(tmp_path, read):
    documents = texts(2000)
    dice = random.Random(1)
    lines = [json.dumps({"id": i, "text": text, "meta": {"n": [i, None, 1.5e-3]}},
                        ensure_ascii=dice.random() < 0.5)
             for i, text in enumerate(documents)]
    data = "\n".join(lines).encode()
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line.encode()) + 1)
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(data[:9000]) + gzip.compress(data[9000:]))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(data))
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst"):
        records = read(tmp_path / name)
        assert only_texts(records) == documents
        assert [record["byte"] for record in records] == offsets[:-1]
        assert [record["place"] for record in records] == [
            f"{tmp_path / name}:{i + 1}" for i in range(len(lines))]


def test_other_fields_that_pythons_json_takes_are_taken(tmp_path, read):
    """Numbers past 64 bits and past doubles, NaN, lone surrogates, 90 levels and more."""
    others = [str(10 ** 40), "-1e999", "NaN", "[Infinity, -Infinity]", '"\\ud800"',
              '{"\\udc00": 1}', "[" * 90 + "]" * 90, '{"a":' * 400 + "1" + "}" * 400]
    lines = [f'{{"a": {other}, "text": {json.dumps(text)}, "labels": {other}}}'
             for other, text in zip(others * 20, texts(160, seed=3))]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert only_texts(read(tmp_path / "a.jsonl")) == [json.loads(x)["text"] for x in lines]


class Keys(encryption.KmsClient):
    """A key service whose keys are their own names."""

    def __init__(self, _):
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key, _):
        return base64.b64encode(key)

    def unwrap_key(self, wrapped, _):
        return base64.b64decode(wrapped)


@pytest.mark.parametrize("plain_footer,says", [(False, "an encrypted Parquet file"),
                                               (True, "a Parquet file with encrypted columns")])
def test_encrypted_parquet_is_called_by_its_name(tmp_path, run, plain_footer, says):
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(
        encryption.KmsConnectionConfig(), encryption.EncryptionConfiguration(
            footer_key="f", column_keys={"k": ["text"]}, plaintext_footer=plain_footer))
    table = pa.table({"text": ["a", "b"], "other": [1, 2]})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, encryption_properties=properties) as out:
        out.write_table(table)
    done = run("longhaul_records_tool", tmp_path / "a.parquet", check=False)
    assert done.returncode == 78
    assert f"{says} at byte 0" in done.stderr and "write it again without encryption" in done.stderr


def test_feathers_first_version_is_called_by_its_name(tmp_path, run):
    (tmp_path / "a.arrow").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    done = run("longhaul_records_tool", tmp_path / "a.arrow", check=False)
    assert done.returncode == 78 and "a file of Feather's first version" in done.stderr


@pytest.mark.parametrize("columns,says", [
    ({"messages": [[{"role": "user", "content": "a"}]]}, "records are chats ('messages')"),
    ({"conversations": [[{"from": "human", "value": "a"}]]}, "records are chats ('conversations')"),
    ({"tags": [["x"]]}, "no column 'text'")])
def test_columns_of_chats_are_called_by_their_name(tmp_path, run, columns, says):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    done = run("longhaul_records_tool", tmp_path / "a.parquet", check=False)
    assert done.returncode == 78 and says in done.stderr


@pytest.mark.parametrize("dialect", [
    {"delimiter": ","}, {"delimiter": "\t", "lineterminator": "\n"},
    {"delimiter": ";", "quoting": csv.QUOTE_ALL}, {"delimiter": ",", "lineterminator": "\r"}])
def test_csv_has_the_fields_that_pythons_csv_wrote(tmp_path, read, dialect):
    """The fields include those with a lone return or newline, which Python leaves unquoted and then
    splits when it reads them."""
    documents = texts(1500)
    out = io.StringIO(newline="")
    writer = csv.writer(out, **dialect)
    writer.writerow(["id", "te,xt", "more"])
    for i, text in enumerate(documents):
        writer.writerow([i, text, documents[-i]])
    path = tmp_path / "a.csv"
    path.write_bytes(out.getvalue().encode())
    records = read("--field", "te,xt", "--delimiter", dialect["delimiter"], path)
    assert only_texts(records) == documents


def test_csv_of_any_characters_splits_as_pythons_csv(tmp_path, read):
    """The rows come from no writer. Rows that Python reads with two fields and without a quote
    after a quote are documents here, too, with the same text."""
    dice = random.Random(3)
    for trial in range(60):
        body = "".join(dice.choices('ab,,"\n\n', k=200)) + "\n"
        path = tmp_path / f"{trial}.csv"
        path.write_bytes(("text,x\n" + body).encode())
        rows = list(csv.reader(io.StringIO("text,x\n" + body, newline="")))[1:]
        try:
            records = read(path)
        except AssertionError as error:
            assert "never closed" in str(error)
            with pytest.raises(csv.Error):
                list(csv.reader(io.StringIO("text,x\n" + body, newline=""), strict=True))
            continue
        assert len(records) == len(rows)
        for row, record in zip(rows, records):
            if record.get("problem") in ("text after a closing quote",):
                continue
            if len(row) == 2 and row[0]:
                assert record["text"] == row[0]
            elif len(row) in (0, 2):
                assert record["problem"] == "empty"
            else:
                assert record["problem"] == "wrong number of fields"


def token_rows(count):
    dice = random.Random(5)
    return [[dice.randrange(60_000) for _ in range(dice.randrange(0, 30))]
            for _ in range(count)]


def expect_rows(records, documents, rows, path):
    """Texts and ids as they are; empty and null ones are named."""
    for i, (record, document) in enumerate(zip(records, documents, strict=True)):
        assert record["place"] == f"{path}: row {i}"
        if document:
            assert record[rows] == document
        else:
            assert record["problem"] == "empty"


@pytest.mark.parametrize("options", [
    {"compression": "none"}, {"compression": "snappy", "data_page_version": "2.0"},
    {"compression": "gzip", "use_dictionary": False, "data_page_size": 1000},
    {"compression": "zstd", "column_encoding": {"text": "DELTA_BYTE_ARRAY"},
     "use_dictionary": False},
    {"compression": "lz4", "write_page_checksum": True}, {"compression": "brotli"}])
@pytest.mark.parametrize("types", [
    (pa.string(), pa.list_(pa.int32())), (pa.large_string(), pa.large_list(pa.uint16())),
    (pa.binary(), pa.list_(pa.int64()))])
def test_parquet_has_the_rows_of_pyarrow(tmp_path, read, options, types):
    documents = [None if i % 50 == 0 else text for i, text in enumerate(texts(1000))]
    rows = [None if i % 70 == 0 else row for i, row in enumerate(token_rows(1000))]
    encoded = [None if text is None else text.encode() for text in documents]
    table = pa.table({"n": range(1000),
                      "text": pa.array(encoded, pa.binary()).cast(types[0]),
                      "input_ids": pa.array(rows, types[1])})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=300, **options)
    expect_rows(read(path), documents, "text", path)
    expect_rows(read("--field", "input_ids", path), rows, "ids", path)


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow_has_the_rows_of_pyarrow(tmp_path, read, kind, compression):
    documents = [None if i % 50 == 0 else text for i, text in enumerate(texts(1000))]
    rows = [None if i % 70 == 0 else row for i, row in enumerate(token_rows(1000))]
    path = tmp_path / "a.arrow"
    opener = ipc.new_stream if kind == "stream" else ipc.new_file
    for text_type in (pa.string(), pa.large_string(), pa.dictionary(pa.int16(), pa.string())):
        table = pa.table({"text": pa.array(documents).cast(text_type),
                          "input_ids": pa.array(rows, pa.list_(pa.int64()))})
        with opener(path, table.schema,
                    options=ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table, max_chunksize=128)
        expect_rows(read(path), documents, "text", path)
        expect_rows(read("--field", "input_ids", path), rows, "ids", path)


def test_directories_of_datasets_are_read_in_the_order_of_their_rows(tmp_path, read):
    documents, rows = texts(3000), token_rows(3000)
    table = datasets.Dataset.from_dict({
        "text": documents, "input_ids": rows,
        "attention_mask": [[1] * len(row) for row in rows]})
    table.save_to_disk(tmp_path / "saved", num_shards=11)
    assert only_texts(read(tmp_path / "saved")) == documents
    read_rows = read("--field", "input_ids", tmp_path / "saved")
    assert [record.get("ids", []) for record in read_rows] == rows
    (tmp_path / "hub").mkdir()
    for shard in range(3):
        table.shard(3, shard, contiguous=True).to_parquet(
            tmp_path / "hub" / f"train-{shard:05}-of-00003.parquet")
    assert only_texts(read(tmp_path / "hub")) == documents
    table.to_json(tmp_path / "lines.jsonl")
    assert only_texts(read(tmp_path / "lines.jsonl")) == documents
    table.to_csv(tmp_path / "table.csv", index=False)
    assert only_texts(read(tmp_path / "table.csv")) == documents


def limited(binary, limit, *arguments):
    """The output of the tool when it may use `limit` bytes of data at most."""
    return subprocess.run(
        [binary("longhaul_records_tool"), *map(str, arguments)], capture_output=True, text=True,
        check=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    ).stdout


def test_zstd_of_any_level_and_window_up_to_the_limit(tmp_path, read, run):
    data = "".join(json.dumps({"text": text}) + "\n" for text in texts(500)).encode()
    for level in (1, 9, 19, 22):
        path = tmp_path / f"{level}.jsonl.zst"
        path.write_bytes(zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data))
        assert only_texts(read(path)) == texts(500)
    wide = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    path = tmp_path / "wide.jsonl.zst"
    stream = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    path.write_bytes(stream.compress(data) + stream.flush())
    result = run("longhaul_records_tool", path, check=False)
    assert result.returncode == 78
    assert "wide.jsonl.zst: a zstd frame with a window above 128 MiB" in result.stderr


@pytest.mark.soak
def test_a_parquet_row_group_is_read_in_constant_memory(tmp_path, binary):
    """120 MB of text in one row group, and as many ids, in 100 MiB of data."""
    words = [str(i) * 5 for i in range(1000)]
    documents = [" ".join(words[i % 700:i % 700 + 100]) for i in range(60_000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": documents, "input_ids": [[i] * 400 for i in range(60_000)]}),
                   path, row_group_size=1 << 20)
    assert pq.ParquetFile(path).num_row_groups == 1
    for field in ("text", "input_ids"):
        rate = json.loads(limited(binary, 100 << 20, "--rate", "--field", field, path))
        assert rate["records"] == len(documents)
        assert rate["text_bytes"] + rate["ids"] == (
            sum(map(len, documents)) if field == "text" else 60_000 * 400)


def test_a_bomb_costs_neither_memory_nor_the_build(tmp_path, binary):
    """A gigabyte of one line, packed into a megabyte, is skipped in constant memory."""
    path = tmp_path / "bomb.jsonl.gz"
    piece = gzip.compress(b"a" * (1 << 26), 9)
    path.write_bytes(gzip.compress(b'{"text":"first"}\n"') + piece * 16 +
                     gzip.compress(b'"\n{"text":"last"}\n'))
    output = limited(binary, 700 << 20, path)
    records = [json.loads(line) for line in output.split("\n") if line]
    assert [record.get("text", record.get("problem")) for record in records] == [
        "first", "too long", "last"]
