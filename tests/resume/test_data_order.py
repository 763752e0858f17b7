"""The data that a run has had is the same for any number of ranks and starts. It is counted by
source."""

import gzip
import json
import re

import h5py
import numpy as np
import pytest
from datasets import Dataset
from programs import later
from runs import final, state, steps_of, write_config

TWO = ('data.train=[{ synthetic = 100, weight = 3 }, { path = "%s", weight = 1 }]',
       'data.changes=[{ step = 4, weights = [1, 1] }, { step = 7, weights = [0, 1] }]')


def train(run, path, *sets, ranks=1, check=True):
    return run("longhaul", "train", path, *[w for s in sets for w in ("--set", s)],
               ranks=ranks, check=check)


@pytest.fixture
def saved(tmp_path):
    """A saved data set of 90 sequences of 32 tokens."""
    ids = [[(i * 7 + j) % 300 for j in range(32)] for i in range(90)]
    Dataset.from_dict({"input_ids": ids}).save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


def mixture(saved):
    return [text % saved if "%s" in text else text for text in TWO]


def test_chain_and_counts_are_those_of_one_rank_and_one_start(run, tmp_path, saved):
    states = {}
    for ranks in (1, 2, 4):
        name = f"ranks_{ranks}"
        train(run, write_config(tmp_path, name), *mixture(saved), ranks=ranks)
        states[name] = state(final(tmp_path / name))
    for stop in (3, 5, 6):
        name = f"stop_{stop}"
        path = write_config(tmp_path, name)
        train(run, path, *mixture(saved), f"run.stop_after={stop}", ranks=2)
        train(run, path, *mixture(saved))
        states[name] = state(final(tmp_path / name))
    first = states["ranks_1"]
    assert all(other == first for other in states.values())
    # The mixture is 3 : 1 for 3 steps, then 1 : 1 for 3 steps, then 2 steps of the second source
    # alone.
    assert [(s["name"], s["sequences"]) for s in first["sources"]] == [
        ("synthetic", 18 + 12), (str(saved), 6 + 12 + 16)]
    assert sum(s["tokens"] for s in first["sources"]) == first["tokens"] == 8 * 8 * 32


def test_another_order_or_token_makes_another_chain(run, tmp_path, saved):
    chains = set()
    other = tmp_path / "other"
    ids = Dataset.load_from_disk(saved)["input_ids"][:]
    ids[5][5] += 1
    Dataset.from_dict({"input_ids": ids}).save_to_disk(other)
    plain = mixture(saved)
    for i, sets in enumerate((plain, plain[:1], mixture(other), [*plain, "run.seed=9"],
                              [*plain, "data.shuffle=false"], [*plain, "run.steps=16"])):
        train(run, write_config(tmp_path, f"run_{i}"), *sets, "run.stop_after=8")
        chains.add(state(final(tmp_path / f"run_{i}"))["batch_hash"])
    # The first steps of a longer run are the same.
    assert len(chains) == 5


def test_counts_stand_in_metrics_log_and_inspect(run, tmp_path, saved):
    train(run, write_config(tmp_path), *mixture(saved))
    last = state(final(tmp_path / "run"))
    counts = {s["name"]: s["tokens"] for s in last["sources"]}
    records = steps_of(tmp_path / "run")
    assert records[8]["source_tokens"] == counts
    for step, record in records.items():
        assert sum(record["source_tokens"].values()) == record["tokens"] == step * 8 * 32
    log = (tmp_path / "run" / "log.txt").read_text()
    assert f"data step 8 synthetic 960 tokens, {saved} 1,088 tokens; chain " in log
    assert last["batch_hash"] in log
    assert "train data synthetic: 46.8750% of the tokens to come, 0.300 epochs at step 8" in log
    shown = json.loads(run("longhaul", "inspect", "--json", final(tmp_path / "run")).stdout)
    assert shown["data"]["batch_hash"] == last["batch_hash"]
    assert shown["data"]["sources"] == last["sources"]
    text = run("longhaul", "inspect", final(tmp_path / "run")).stdout
    assert last["batch_hash"] in text and f"{saved}: 1,088 tokens, 34 sequences" in text


def test_new_weights_on_resume_repeat_nothing(run, tmp_path, saved):
    path = write_config(tmp_path)
    train(run, path, mixture(saved)[0], "run.stop_after=4")
    train(run, path, mixture(saved)[0].replace("weight = 3", "weight = 1"))
    last = state(final(tmp_path / "run"))
    assert [s["sequences"] for s in last["sources"]] == [24 + 16, 8 + 16]
    assert len(last["cursor"]["phases"]) == 2
    assert "a new phase begins" in (tmp_path / "run" / "log.txt").read_text()


def test_a_source_is_not_read_more_often_than_its_cap(run, tmp_path, saved):
    sets = [f'data.train=[{{ path = "{saved}", max_epochs = 0.5 }}]']
    result = train(run, write_config(tmp_path), *sets, check=False)
    assert result.returncode == 78
    assert (f"{saved}: max_epochs = 0.5 is used up at step 6 of 8; with these weights "
            "the source would be read 0.711 times") in result.stderr


def test_epochs_end_where_the_data_does_whatever_the_batch_was(run, tmp_path):
    path = write_config(tmp_path)
    log = tmp_path / "run" / "log.txt"
    sets = ["run.steps=", "run.epochs=3", "data.train=[{ synthetic = 49 }]",
            "schedule.kind=constant", "batch.micro_size=1"]
    train(run, path, *sets, "run.stop_after=8")
    assert "steps 1 to 8 of 18; one epoch is 6.1 steps" in log.read_text()
    train(run, path, *sets, "run.stop_after=12", "batch.global_size=6")
    assert ("run.epochs = 3: 1.306 are done, and what is left is 13 steps; the last 5 sequences of "
            "the data do not fill a batch of 6 and are not trained") in log.read_text()
    assert "100.0000% of the tokens to come, 2.898 epochs at step 21" in log.read_text()
    train(run, path, *sets)
    last = state(tmp_path / "run" / "checkpoints" / "step_00000019")
    assert [s["sequences"] for s in last["sources"]] == [8 * 8 + 4 * 6 + 7 * 8]
    assert last["schedule"]["steps"] == 19
    train(run, path, *sets)
    assert "nothing to do: step 19 of 19 is done" in log.read_text()


def test_epochs_of_another_length_are_those_that_are_left(run, tmp_path):
    lines = "".join(json.dumps({"tokens": [(i * 7 + j) % 300 for j in range(32)]}) + "\n"
                    for i in range(90))
    (tmp_path / "ids.jsonl").write_text(lines)
    path = write_config(tmp_path)
    sets = ["run.steps=", "run.epochs=3", "schedule.kind=constant",
            f'data.train=[{{ path = "{tmp_path}/ids.jsonl", field = "tokens" }}]']
    train(run, path, *sets, "run.stop_after=24")
    train(run, path, *sets, "data.seq_len=16")  # 192 of 3 times 89, and then of 179
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "run.epochs = 3: 2.157 are done, and what is left is 18 steps" in log
    assert "2.962 epochs at step 42" in log
    records = steps_of(tmp_path / "run")
    assert len(records) == 42
    assert records[24]["epoch"] == pytest.approx(192 / 89)
    assert records[42]["epoch"] == pytest.approx(192 / 89 + 144 / 179)


def ready_lines(count):
    """Ready ids of uneven lengths, some padded at the end, some tokens no targets."""
    for i in range(count):
        length = 20 + i * 37 % 91
        ids = [(i * 5 + j) % 300 for j in range(length)]
        mask = [1] * length
        labels = [-100] * 7 + ids[7:] if i % 4 == 0 else list(ids)
        if i % 3 == 0:
            ids, mask, labels = ids + [0] * 9, mask + [0] * 9, labels + [-100] * 9
        yield {"input_ids": ids, "attention_mask": mask, "labels": labels}


@pytest.mark.parametrize("kind", ["parquet", *later("jsonl", "saved", "jsonl.gz")])
def test_ready_ids_are_packed_once_and_lose_no_token(run, tmp_path, kind):
    rows = list(ready_lines(60))
    source = tmp_path / ("uneven" if kind == "saved" else f"ids.{kind}")
    if kind == "saved":
        Dataset.from_list(rows).save_to_disk(source)
    elif kind == "parquet":
        Dataset.from_list(rows).to_parquet(str(source))
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        source.write_bytes(gzip.compress(text) if kind == "jsonl.gz" else text)
    path = write_config(tmp_path)
    sets = [f'data.train=[{{ path = "{source}" }}]', "data.shuffle=false"]
    train(run, path, *sets, "run.stop_after=4", ranks=2)
    train(run, path, *sets)
    log = (tmp_path / "run" / "log.txt").read_text()
    tokens = sum(sum(row["attention_mask"]) for row in rows)
    assert log.count(f"60 documents of 20 to 110 ready ids, {tokens:,} tokens, 105 of them "
                     "no targets; 180 padded positions left out") == 2
    assert log.count(": this is done once, and later starts use it again") == 1
    assert log.count("packed earlier: ") == 1
    (store,) = (tmp_path / "run" / "data").glob("packed_*")
    flat, labels = ([i for row in rows for i, m in zip(row[name], row["attention_mask"]) if m]
                    for name in ("input_ids", "labels"))
    shown = run("longhaul_data_tool", store, 32, 300).stdout.splitlines()
    read = [json.loads(line) for line in shown]
    assert [t for row in read for t in row["tokens"]] == flat[:len(read) * 32]
    assert [t for row in read for t in row["targets"]] == labels[1:len(read) * 32 + 1]
    assert len(read) == (tokens - 1) // 32


def test_a_validation_set_of_a_list_is_its_parts_as_one(run, tmp_path, saved):
    ids = Dataset.load_from_disk(saved)["input_ids"][:]
    for name, part in (("first", ids[:50]), ("second", ids[50:])):
        Dataset.from_dict({"input_ids": part}).save_to_disk(tmp_path / "parts" / name)
    for name, part in (("all", ids), ("head", ids[:50]), ("tail", ids[50:])):
        lines = "".join(json.dumps({"tokens": row}) + "\n" for row in part)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    sets = ", ".join(f'{{ name = "{name}", {path} }}' for name, path in (
        ("one", f'path = "{saved}"'),
        ("list", f'path = ["{tmp_path}/parts/first", "{tmp_path}/parts/second"]'),
        ("pattern", f'path = "{tmp_path}/parts/*"'),
        ("half", f'path = "{tmp_path}/parts/first"'),
        ("packed", f'path = "{tmp_path}/all.jsonl", field = "tokens"'),
        ("packed_list", f'path = ["{tmp_path}/head.jsonl", "{tmp_path}/tail.jsonl"], '
                        'field = "tokens"')))
    path = write_config(tmp_path)
    train(run, path, f"data.validation=[{sets}]", "validation.batches=0", "run.stop_after=1",
          ranks=2)
    log = (tmp_path / "run" / "log.txt").read_text()
    losses = {m[1]: m[2] for m in re.finditer(r"validation step 1 (\w+) loss ([0-9.]+)", log)}
    assert len(losses) == 6
    assert losses["list"] == losses["pattern"] == losses["one"] != losses["half"]
    assert losses["packed_list"] == losses["packed"]
    assert "validation data list: 2 sources as one, 90 sequences of 32" in log


def test_damaged_ready_ids_are_refused_on_every_rank(run, tmp_path):
    source = tmp_path / "ids.jsonl"
    source.write_text('{"input_ids": [1, 2, 3]}\n{"input_ids": [1, 2, "x"]}\n')
    result = train(run, write_config(tmp_path), f'data.train=[{{ path = "{source}" }}]',
                   ranks=2, check=False)
    assert result.returncode != 0
    assert "ids.jsonl:2" in result.stderr


@pytest.mark.parametrize("ranks", [2, *later(1)])
def test_shards_of_examples_need_a_model_that_learns_from_them(run, tmp_path, ranks):
    """The refusal comes before the shards are packed, which may take long."""
    with h5py.File(tmp_path / "a_training_0.hdf5", "w") as file:
        for name, shape, kind in [
                ("input_ids", (8, 32), "i4"), ("masked_lm_positions", (8, 5), "i4"),
                ("masked_lm_ids", (8, 5), "i4"), ("input_mask", (8, 32), "i1"),
                ("segment_ids", (8, 32), "i1"), ("next_sentence_labels", (8,), "i1")]:
            file[name] = np.ones(shape, kind)
    for path in (tmp_path / "*_training_*.hdf5", tmp_path):
        result = train(run, write_config(tmp_path), f'data.train=[{{ path = "{path}" }}]',
                       ranks=ranks, check=False)
        assert result.returncode == 78
        assert ("has targets for masked_token and next_sentence, but a model of type "
                '"llama" needs targets for next_token') in result.stderr
    assert not (tmp_path / "run" / "data").exists()
