"""A small corpus in each kind of file, and how two builds of it are compared."""

import csv
import gzip
import json
import pathlib
import random

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from datasets import Dataset
from servers import BUCKET

WORDS = ("the sea was calm and a ship went over it with wind from west while all on board slept "
         "but one who held the wheel and sang of home number").split()
# For each kind: patterns of its inputs below the corpus, and further options of its build.
KINDS = {
    "lines": ["lines/*.jsonl"],
    "one object": ["lines/part-0.jsonl"],
    "prefix": ["lines"],
    "gzip": ["gzip/*.jsonl.gz"],
    "zstd": ["zstd/*.jsonl.zst"],
    "csv": ["table.csv", "--field", "text"],
    "tabs": ["table.tsv", "--field", "text"],
    "parquet": ["parquet/*.parquet"],
    "arrow": ["table.arrow"],
    "saved": ["saved", "--field", "text"],
    "texts": ["deep/**/*.txt"],
    "several": ["lines/part-1.jsonl", "gzip/part-0.jsonl.gz", "table.csv"],
    "twice": ["lines/*.jsonl", "--drop-duplicates"],
    "holdout": ["lines/*.jsonl", "--holdout", "20%"],
}


def documents(count, seed=3, words=120):
    """`count` random documents, some of which occur twice."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=chance.randrange(1, words)) + [str(n)])
             for n in range(count)]
    return [*texts, *texts[: count // 10]]


def lines_of(texts):
    return "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts))


def write_corpus(root, count=600):
    """Writes files of all kinds below `root`, and a text from which a tokenizer is trained."""
    for folder in ("lines", "gzip", "zstd", "parquet", "deep/a b+ü/c"):
        (root / folder).mkdir(parents=True)
    texts = documents(count)
    parts = [texts[n::4] for n in range(4)]
    for number, part in enumerate(parts):
        lines = lines_of(part).encode()
        (root / f"lines/part-{number}.jsonl").write_bytes(lines)
        (root / f"gzip/part-{number}.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))
        (root / f"zstd/part-{number}.jsonl.zst").write_bytes(zstandard.compress(lines))
        pq.write_table(pa.table({"text": part}), root / f"parquet/part-{number}.parquet",
                       row_group_size=50)
        (root / f"deep/{['', 'a b+ü/'][number % 2]}{number} x%.txt").write_text(part[0])
    (root / "deep/a b+ü/c/last.txt").write_text(texts[-1])
    for name, delimiter in (("table.csv", ","), ("table.tsv", "\t")):
        with (root / name).open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([["id", "text"], *enumerate(texts)])
    table = pa.table({"text": texts})
    with pa.OSFile(str(root / "table.arrow"), "wb") as file, \
            pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    Dataset.from_dict({"text": texts}).save_to_disk(root / "saved", num_shards=2)


def address(name, bucket=BUCKET):
    return f"s3://{bucket}/{name}"


def inputs_of(kind, where):
    """The words that build a store of this kind from inputs below a directory or an address."""
    words, options = KINDS[kind], []
    for number, word in enumerate(words):
        if word.startswith("--"):
            words, options = words[:number], words[number:]
            break
    return [f"{where}/{word}" for word in words] + options


def contents(store):
    """The content of a store's files, without the paths of its inputs: two builds of the same data
    agree in it byte by byte."""
    found = {path.relative_to(store).as_posix(): path.read_bytes()
             for path in sorted(pathlib.Path(store).rglob("*")) if path.is_file()}
    told = json.loads(found.pop("store.json"))
    del told["build"]
    for source in told["sources"]:
        source["path"] = source["path"].rsplit("/", 1)[-1]
    return found, told


def same_store(one, other):
    mine, theirs = contents(one), contents(other)
    assert mine[1] == theirs[1]
    assert mine[0].keys() == theirs[0].keys()
    assert [name for name in mine[0] if mine[0][name] != theirs[0][name]] == []
