"""Every kind of data follows the options that are given for it, or an error names the option."""

import gzip
import json
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset
from refusals import refused, refused_without_a_trace, training_refused

LENGTH = 64
IDS = [[(7 * row + i) % 599 for i in range(LENGTH)] for row in range(40)]
UNEVEN = [*IDS[:-1], IDS[-1][:-5]]


def columns_of(rows):
    """Columns with the rows in `tokens`; a run with field = "tokens" must not look at input_ids."""
    return {"input_ids": [[1] * len(row) for row in rows], "tokens": rows}


def lines_of(columns):
    return "".join(json.dumps(dict(zip(columns, row))) + "\n" for row in zip(*columns.values()))


def save(path, columns):
    Dataset.from_dict(columns).save_to_disk(path)


def write_kinds(root):
    """Writes the same uneven rows in each kind that is packed, and even rows for kinds that are
    trained on in place."""
    save(root / "even", columns_of(IDS))
    save(root / "even_plain", {"input_ids": IDS})
    columns = columns_of(UNEVEN)
    save(root / "uneven", columns)
    (root / "lines.jsonl").write_text(lines_of(columns))
    (root / "plain.jsonl").write_text(lines_of({"input_ids": UNEVEN}))
    table = pa.table(columns)
    with pq.ParquetWriter(root / "table.parquet", table.schema) as writer:
        for part in (table.slice(0, 0), table.slice(0, 20), table.slice(0, 0), table.slice(20)):
            writer.write_table(part)
    with pa.OSFile(str(root / "table.arrow"), "wb") as file, \
            pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    (root / "shards").mkdir()
    for number, (begin, end) in enumerate([(0, 25), (25, 40)]):
        part = lines_of({name: rows[begin:end] for name, rows in columns.items()})
        (root / f"shards/part-{number}.json.gz").write_bytes(gzip.compress(part.encode()))
    (root / "shards/README.md").write_text("no corpus")
    (root / "shards/.done").write_text("")


def trained_on(run, root, path, *more):
    """Trains a step; returns the hash of all data that it saw, and the log."""
    entry = ", ".join([f'path="{path}"', *more])
    run("longhaul", "train", "run.toml", "--set", f'run.dir="runs/{path}"', "--set",
        f"data.train=[{{{entry}}}]", "--set", "data.validation=[]", "--set", "run.steps=2",
        "--set", "data.shuffle=false", cwd=root)
    log = (root / "runs" / path / "log.txt").read_text()
    return re.findall(r"chain ([0-9a-f]{16})", log)[-1], log


def test_a_field_is_what_is_trained_on_whatever_the_kind(run, root):
    write_kinds(root)
    field = 'field="tokens"'
    assert trained_on(run, root, "even", field)[0] == trained_on(run, root, "even_plain")[0]
    expected, _ = trained_on(run, root, "plain.jsonl")
    for kind in ("uneven", "lines.jsonl", "table.parquet", "table.arrow"):
        assert trained_on(run, root, kind, field)[0] == expected, kind
    # A directory that holds one kind is taken; its files that are no corpus are counted and named.
    found, log = trained_on(run, root, "shards", field)
    assert found == expected
    assert "2 files or directories passed over as no corpus: .done, README.md" in log


def test_inspect_says_what_ready_ids_are_and_tells_them_from_text(run, root):
    write_kinds(root)
    tokens = sum(map(len, UNEVEN))
    for kind, files, form in [("shards", 2, "jsonl"), ("table.parquet", 1, "parquet"),
                              ("table.arrow", 1, "arrow"), ("uneven", None, None)]:
        said = json.loads(run("longhaul", "data", "inspect", kind, "--field", "tokens", "--json",
                              cwd=root).stdout)
        assert (said["rows"], said["tokens"], said["longest"]) == (40, tokens, LENGTH), kind
        assert said["first_ids"] == IDS[0][:16], kind
        assert (said.get("files"), said.get("format")) == (files, form), kind
        quick = run("longhaul", "inspect", kind, cwd=root).stdout  # the field input_ids, of ones
        assert "first ids       " + " ".join(["1"] * 16) + " [...]" in quick, kind
        assert ("ready ids " + kind in quick) == (files is not None), kind
    (root / "text.jsonl").write_text('{"text": "words"}\n')
    refused_without_a_trace(run, root, ["data", "inspect", "text.jsonl"], "neither a token store",
                            "field missing")
    refused_without_a_trace(run, root, ["data", "inspect", "text.jsonl", "--field", "text"],
                            "holds text, not token ids")
    refused_without_a_trace(run, root, ["inspect", "text.jsonl"], "longhaul data build")
    next((root / "uneven").glob("*.arrow")).unlink()
    gone = run("longhaul", "inspect", "uneven", cwd=root, check=False)
    assert gone.returncode == 78 and "NOT COMPLETE" in gone.stdout and "missing" in gone.stdout


def test_a_field_that_a_kind_does_not_have_is_refused(run, root):
    save(root / "even", columns_of(IDS))
    save(root / "even_plain", {"input_ids": IDS})
    (root / "lines.jsonl").write_text(lines_of(columns_of(UNEVEN)))
    for entry, words in [
            ('path="data/mine", field="tokens"', ["data/mine: field = \"tokens\"", "token store"]),
            ('synthetic=100, field="tokens"', ["field = \"tokens\"", "synthetic"]),
            ('path="even", field="absent"', ["no column 'absent'"]),
            ('path="lines.jsonl", field="absent"', ["field missing", "'absent'"])]:
        training_refused(run, root, [f"data.train=[{{{entry}}}]"], *words)
    training_refused(run, root, ['data.validation=[{name="x", path="data/mine", field="t"}]'],
                     'field = "t"', "token store")
    evaluate = ["eval", "models/small", "--seq-len", str(LENGTH), "--data"]
    refused_without_a_trace(run, root, [*evaluate, "data/mine", "--field", "tokens"],
                            "token store", "leave field out")
    refused_without_a_trace(run, root, ["data", "inspect", "data/mine", "--field", "tokens"],
                            "leave field out")
    losses = [json.loads(run("longhaul", *evaluate, *words, "--json", cwd=root).stdout)["loss"]
              for words in (["even", "--field", "tokens"], ["even_plain"], ["even"])]
    assert losses[0] == losses[1] != losses[2]


def test_what_no_input_obeys_is_refused_by_data_build(run, root):
    save(root / "even", columns_of(IDS))
    (root / "lines.jsonl").write_text(lines_of(columns_of(UNEVEN)))
    for words, message in [
            (["corpus/*.txt", "--field", "body"], "--field body: each input is a file of text"),
            (["corpus/*.txt", "--delimiter", ";"], "--delimiter: none of the inputs is CSV"),
            (["corpus/*.txt", "--max-bad-records", "3"], "--bad-records drop"),
            (["corpus/*.txt", "--global-size", "8"], "--seq-len"),
            (["corpus/*.txt", "--vocab-size", "600"], "--tokenizer excludes --vocab-size"),
            (["lines.jsonl", "--field", "tokens", "--special-tokens", "both"],
             "--special-tokens both: 'tokens' holds ready ids"),
            (["even", "--format", "text"], "leave --format out"),
            (["corpus/**.txt"], "'**.txt' holds more than **; write for example 'corpus/**/*.jsonl'")]:
        refused_without_a_trace(run, root, ["data", "build", *words, "--tokenizer",
                                            "models/small", "--out", "data/new"], message)


def test_two_stars_descend_and_a_directory_is_read_by_every_verb(run, root):
    (root / "deep/one/two").mkdir(parents=True)
    for number, name in enumerate(["a.txt", "one/b.txt", "one/two/c.txt", "one/two/d.txt"]):
        (root / "deep" / name).write_text(f"text {number}")
    build = ["data", "build", "--tokenizer", "models/small", "--out"]

    def documents(out, *inputs):
        run("longhaul", *build, f"data/{out}", *inputs, cwd=root)
        return json.loads((root / "data" / out / "store.json").read_text())["documents"]

    assert documents("all", "deep/**/*.txt") == 4
    assert documents("last", "deep/one/two") == 2
    refused_without_a_trace(run, root, [*build, "data/x", "deep"], "holds data and also",
                            "'deep/**/*.txt' for all the files")
    (root / "code").mkdir()
    for name in ("a.py", "b.md", "Makefile", "LICENSE"):
        (root / "code" / name).write_text("def words(): return 'some words'\n" * 40)
    tokenizer = ["data", "train-tokenizer", "code", "--vocab-size", "300", "--out", "tok"]
    refused_without_a_trace(run, root, tokenizer, "4 files or directories passed over", "--format")
    result = run("longhaul", *tokenizer, "--format", "text", cwd=root)
    assert "from 3 documents" in re.sub(r"\s+", " ", result.stdout)
    assert "1 file or directory passed over as no corpus: LICENSE" in result.stderr
    result = run("longhaul", *build, "data/code", "code", "--format", "text", cwd=root)
    assert "1 file or directory passed over as no corpus: LICENSE" in result.stderr


def test_a_name_that_is_a_pattern_too_is_refused_where_it_is_not_clear(run, root):
    (root / "run[1].jsonl").write_text('{"text": "one"}\n')
    (root / "run1.jsonl").write_text('{"text": "other"}\n')
    refused_without_a_trace(run, root, ["data", "build", "run[1].jsonl", "--tokenizer",
                                        "models/small", "--out", "data/x"],
                            "run[1].jsonl has exactly this name", "run1.jsonl")
    training_refused(run, root, ['data.train=[{path="run[1].jsonl"}]'],
                     "run[1].jsonl has exactly this name", "run1.jsonl")


def test_paths_that_are_not_utf8_are_refused_and_name_the_byte(run, root):
    directory = os.fsencode(root) + b"/odd"
    os.mkdir(directory)
    with open(directory + b"/caf\xe9.jsonl", "w") as file:
        file.write('{"text": "one", "input_ids": [1, 2]}\n')
    words = ("caf\\xe9.jsonl", "the path is not UTF-8", "0xe9")
    for given in ("odd", "odd/*.jsonl", os.fsdecode(b"odd/caf\xe9.jsonl")):
        result = run("longhaul", "data", "build", given, "--tokenizer", "models/small", "--out",
                     "data/x", check=False, cwd=root)
        refused(result, *words)
    for given in ("odd", "odd/*.jsonl"):
        training_refused(run, root, [f'data.train=[{{path="{given}"}}]'], *words)


def test_sums_that_cannot_be_counted_are_refused_by_name(run, root):
    training_refused(run, root, ["run.steps=", "run.epochs=1e17"], "run.epochs = 1e+17",
                     "a run has at most 1000000000000")
    training_refused(run, root, ["run.steps=1000000000000", "batch.global_size=16000000"],
                     "run.steps: 1000000000000 steps of batch.global_size = 16000000")
    refused_without_a_trace(run, root, ["eval", "models/small", "--data", "data/mine",
                                        "--seq-len", "64", "--micro-size", "999999999"],
                            "--micro-size 999999999", "a forward pass has at most 2147483647")
