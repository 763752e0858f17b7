"""Token stores as a user makes them: exported for datasets, built by several processes and
through kills, within their memory, inspected and split."""

import gzip
import json
import random
import subprocess
import sys

import pytest

# Ids below this number are taken as they are, so that no tokenizer has to be trained.
VOCABULARY = 40_000


def id_rows(count, longest=60, seed=3):
    generator = random.Random(seed)
    for _ in range(count):
        yield [generator.randrange(VOCABULARY) for _ in range(generator.randint(1, longest))]


def write_ids(path, count, masks=False, **options):
    generator = random.Random(11)
    with path.open("w") as file:
        for ids in id_rows(count, **options):
            row = {"input_ids": ids}
            if masks:
                row["attention_mask"] = [int(generator.random() > 0.1) for _ in ids[:-1]] + [1]
            file.write(json.dumps(row) + "\n")
    return path


def build(run, source, out, *words, **options):
    return run("longhaul", "data", "build", source, "--field", "input_ids", "--vocab-size",
               VOCABULARY, "--out", out, *words, **options)


def contents(directory):
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("tail", ["drop", "keep"])
def test_datasets_opens_an_export_and_finds_every_id_and_label(run, tmp_path, tail):
    from datasets import Dataset, List, Value

    source = write_ids(tmp_path / "rows.jsonl", 3000, masks=True)
    build(run, source, tmp_path / "store", "--part-size", "100KB")
    result = json.loads(run("longhaul", "data", "export", tmp_path / "store", "--out",
                            tmp_path / "hf", "--seq-len", 128, "--shard-size", "300KB", "--tail",
                            tail, "--json").stdout)
    ids, labels = [], []
    for line in source.open():
        row = json.loads(line)
        ids += row["input_ids"]
        labels += [i if m else -100 for i, m in zip(row["input_ids"], row["attention_mask"])]
    dataset = Dataset.load_from_disk(tmp_path / "hf")
    assert dataset.features["input_ids"] == List(Value("int32"))
    assert dataset.features["attention_mask"] == List(Value("int8"))
    assert dataset.features["labels"] == List(Value("int64"))
    assert result["files"] > 2 and len(list((tmp_path / "hf").glob("*.arrow"))) == result["files"]
    end = len(ids) if tail == "keep" else len(ids) // 128 * 128
    assert len(dataset) == result["rows"] == -(-end // 128)
    assert result["tokens_left"] == len(ids) - end
    assert [i for row in dataset["input_ids"][:] for i in row] == ids[:end]
    assert [i for row in dataset["labels"][:] for i in row] == labels[:end]
    assert all(all(row) for row in dataset["attention_mask"][:])
    # longhaul reads back the directory that it has exported for datasets.
    again = json.loads(run("longhaul", "data", "inspect", tmp_path / "hf", "--json").stdout)
    assert again["rows"] == result["rows"] and again["tokens"] == end


def test_mpirun_with_three_processes_makes_what_one_makes(run, tmp_path):
    source = write_ids(tmp_path / "rows.jsonl", 4000)
    build(run, source, tmp_path / "one", "--part-size", "100KB", "--holdout", "10%")
    build(run, source, tmp_path / "three", "--part-size", "100KB", "--holdout", "10%", ranks=3)
    for side in ("", "-val"):
        assert contents(tmp_path / f"one{side}") == contents(tmp_path / f"three{side}")


def test_inspect_counts_tokens_lengths_sequences_and_steps(run, tmp_path):
    source = write_ids(tmp_path / "rows.jsonl", 500)
    rows = [json.loads(line)["input_ids"] for line in source.open()]
    tokens = sum(map(len, rows))
    build(run, source, tmp_path / "store")
    shown = json.loads(run("longhaul", "data", "inspect", tmp_path / "store", "--seq-len", 32,
                           "--global-size", 8, "--json").stdout)
    assert (shown["documents"], shown["tokens"]) == (500, tokens)
    assert shown["epoch"]["sequences"] == (tokens - 1) // 32
    assert shown["epoch"]["steps"] == (tokens - 1) // 32 / 8
    assert shown["epoch"]["tokens_left"] == (tokens - 1) % 32
    for bucket in shown["lengths"]:
        assert bucket["documents"] == sum(bucket["from"] <= len(r) <= bucket["to"] for r in rows)
    assert sum(bucket["documents"] for bucket in shown["lengths"]) == 500
    (tmp_path / "run.toml").write_text("x = 1")
    text = run("longhaul", "inspect", tmp_path / "store").stdout
    assert "complete" in text and "lengths" in text


def test_split_needs_no_tokenizer_and_loses_nothing(run, tmp_path):
    source = write_ids(tmp_path / "rows.jsonl", 500)
    build(run, source, tmp_path / "store")
    sides = json.loads(run("longhaul", "data", "split", tmp_path / "store", "--out-train",
                           tmp_path / "train", "--out-validation", tmp_path / "val",
                           "--documents", 50, "--json").stdout)
    assert sides["train"]["documents"] == 450 and sides["validation"]["documents"] == 50
    for side in ("train", "val"):
        run("longhaul", "verify", tmp_path / side)
    message = run("longhaul", "data", "split", tmp_path / "store", "--out-train", tmp_path / "x",
                  "--out-validation", tmp_path / "y", check=False).stderr
    assert "--share or --documents" in message


def peak_of(binary, arguments):
    """Peak resident bytes of one build."""
    code = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
            "stdout=subprocess.DEVNULL); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)")
    result = subprocess.run([sys.executable, "-c", code, binary("longhaul"), *map(str, arguments)],
                            capture_output=True, text=True, check=True)
    return int(result.stdout)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_memory_does_not_grow_with_the_input(binary, tmp_path, packed):
    line = json.dumps({"input_ids": list(range(2000))}) + "\n"
    peaks = []
    for times in (1, 20):
        path = tmp_path / f"rows{times}.jsonl{'.gz' if packed else ''}"
        with (gzip.open(path, "wt", 1) if packed else path.open("w")) as file:
            for _ in range(400 * times):
                file.write(line)
        peaks.append(peak_of(binary, [
            "data", "build", path, "--field", "input_ids", "--vocab-size", VOCABULARY, "--out",
            tmp_path / f"store{times}", "--memory", "64MiB", "--threads", 2,
            "--part-size", "1MiB"]))
    assert peaks[1] < peaks[0] * 1.2 + (16 << 20), peaks


def test_one_huge_line_stays_within_the_memory(run, binary, tmp_path):
    small = tmp_path / "small.jsonl"
    small.write_text('{"input_ids":[1]}\n')
    huge = tmp_path / "huge.jsonl"
    count = 4_000_000
    with huge.open("w") as file:
        file.write('{"input_ids":[' + "12345," * (count - 1) + "1]}\n")
    words = ["--field", "input_ids", "--vocab-size", VOCABULARY, "--memory", "256MiB"]
    least = peak_of(binary, ["data", "build", small, *words, "--out", tmp_path / "a"])
    most = peak_of(binary, ["data", "build", huge, *words, "--out", tmp_path / "b"])
    assert most - least < 512 << 20, (least, most)
    info = json.loads((tmp_path / "b" / "store.json").read_text())
    assert info["tokens"] == count and info["documents"] == 1
