"""`longhaul why`: the documents of every step are those whose tokens were trained on, over a resume with
other settings, epochs' ends, a mixture and whole rows; a planted document is found, by its loss too."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
import xxhash
from datasets import Dataset
from runs import steps_of, write_config
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

GARBAGE = 11  # the line of the planted document, from 1
LAST = 16
SETS = ('precision.compute="fp32"', "batch.global_size=4", f"run.steps={LAST}",
        "checkpoint.every=3")


def corpus(tmp_path, run, name, lengths, seed, garbage=False):
    """A store of documents of which every second token is the same, and its lines. One line is of
    random ids."""
    draw = random.Random(seed)
    lines = []
    for number, length in enumerate(lengths, 1):
        ids = [7 if j % 2 == 0 else draw.randrange(250, 300) for j in range(length)]
        if garbage and number == GARBAGE:
            ids = [draw.randrange(300) for _ in range(length)]
        lines.append(ids)
    source = tmp_path / f"{name}.jsonl"
    source.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in lines))
    run("longhaul", "data", "build", source, "--field", "input_ids", "--vocab-size", 300,
        "--part-size", "2KB", "--out", tmp_path / name)
    return source, lines


class Store:
    """Reads a token store."""

    def __init__(self, path):
        self.path = path
        record = json.loads((path / "store.json").read_text())
        tokens, ends = [], []
        for shard in record["shards"]:
            ends += [len(tokens) + int(e)
                     for e in np.fromfile(path / shard["document_file"]["name"], "<u8")]
            tokens += np.fromfile(path / shard["token_file"]["name"], "<u2").tolist()
        self.tokens, self.ends = tokens, ends

    def begin(self, document):
        return self.ends[document - 1] if document else 0

    def document(self, number):
        return self.tokens[self.begin(number):self.ends[number]]


def sequence_hash(tokens, targets, number):
    value = number
    for values in (tokens, targets):
        value = xxhash.xxh3_64_intdigest(np.array(values, "<i4").tobytes(), value)
    return value


def content(parts, stores, seq_len, whole):
    """Tokens and targets of a sequence that is made of these parts."""
    parts = sorted(parts, key=lambda p: p["begin"])
    if whole:
        tokens, targets = [], []
        for part in parts:
            document = stores[part["store"]].document(part["document"])
            assert part["begin"] == len(tokens)
            tokens += document
            targets += document[1:] + [-100]
        padding = seq_len - len(tokens)
        return tokens + [0] * padding, targets + [-100] * padding
    store = stores[parts[0]["store"]]
    begin = store.begin(parts[0]["document"]) + parts[0]["offset"]
    at = 0
    for part in parts:
        assert (part["begin"], store.begin(part["document"]) + part["offset"]) == (at, begin + at)
        assert begin + at + part["tokens"] <= store.ends[part["document"]]
        at += part["tokens"]
    assert at == seq_len
    return store.tokens[begin:begin + seq_len], store.tokens[begin + 1:begin + seq_len + 1]


def train(run, path, *sets):
    return run("longhaul", "train", path, *[w for s in (*SETS, *sets) for w in ("--set", s)])


def why(run, run_dir, *words, code=0):
    result = run("longhaul", "why", run_dir, *words, "--json", check=False)
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


def content_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    """A run of a mixture of two stores, of which the smaller one is read again and again: seven steps
    of streams, then whole rows of another length and with other weights. It goes back once."""
    tmp_path = tmp_path_factory.mktemp("why")
    draw = random.Random(3)
    sources = {
        "large": corpus(tmp_path, run, "large", [draw.randint(5, 60) for _ in range(30)], 1, True),
        "small": corpus(tmp_path, run, "small", [draw.randint(5, 40) for _ in range(15)], 2)}
    weights = ('data.train=[{{ path = "{0}/large", weight = {1} }}, '
               '{{ path = "{0}/small", weight = {2} }}]')
    path = write_config(tmp_path)
    train(run, path, weights.format(tmp_path, 2, 1), "run.stop_after=7")
    train(run, path, weights.format(tmp_path, 1, 1), 'data.pack="whole"', "data.seq_len=64",
          "data.changes=[{ step = 13, weights = [5, 1] }]",
          'debug.faults=[{ step = 14, kind = "nonfinite_loss" }]',
          'resilience.on_bad_step="rollback"', "resilience.rollback_steps=1")
    assert "ROLLED BACK from step 14 to step 12" in (tmp_path / "run" / "log.txt").read_text()
    before = content_of(tmp_path / "run")
    told = {step: why(run, tmp_path / "run", "--step", step) for step in range(1, LAST + 1)}
    assert content_of(tmp_path / "run") == before
    return tmp_path, sources, told


def test_the_documents_of_every_step_are_those_that_it_was_trained_on(run, made):
    tmp_path, sources, steps = made
    stores = {str(tmp_path / name): Store(tmp_path / name) for name in sources}
    records = steps_of(tmp_path / "run")
    assert sorted(records) == sorted(steps) == list(range(1, LAST + 1))
    seen, number, epochs = {}, 0, set()
    for step, told in steps.items():
        whole = step > 7
        total = 0
        for i in range(told["sequences"]):
            parts = [p for p in told["parts"] if p["sequence"] == i]
            tokens, targets = content(parts, stores, 64 if whole else 32, whole)
            total += sequence_hash(tokens, targets, number + i)
            for part in parts:
                begin = stores[part["store"]].begin(part["document"]) + part["offset"]
                first = (part["store"], begin)
                assert part["seen"] == seen.get(first, 0)
                epochs.add(part["seen"])
            for part in parts:
                begin = stores[part["store"]].begin(part["document"]) + part["offset"]
                for at in range(part["tokens"]):
                    place = (part["store"], begin + at)
                    seen[place] = seen.get(place, 0) + 1
        number += told["sequences"]
        assert f"{total % 2**64:016x}" == records[step]["data_hash"] == told["data_hash"]
        for one in told["documents"]:
            name = one["source"].rsplit("/", 1)[1]
            file, lines = sources[name]
            assert one["file"] == str(file)
            ids = stores[one["store"]].document(one["document"])
            assert lines[one["record"] - 1] == ids
    assert max(epochs) >= 2


def test_a_planted_document_is_found_over_the_resume(run, made):
    tmp_path, sources, steps = made
    file = sources["large"][0]
    sights = why(run, tmp_path / "run", "--document", f"{file}:{GARBAGE}")
    had = [sight["step"] for sight in sights]
    assert min(had) <= 7 < max(had)
    found = [step for step, told in steps.items() for one in told["documents"]
             if (one["file"], one["record"]) == (str(file), GARBAGE)]
    assert sorted(set(had)) == found
    text = run("longhaul", "why", tmp_path / "run", "--document", f"{file}:{GARBAGE}").stdout
    assert [int(line.split()[0]) for line in text.splitlines()[2:]] == had
    refused = run("longhaul", "why", tmp_path / "run", "--document", f"{file}:999", check=False)
    assert refused.returncode == 78
    assert "no source of the run has a document" in refused.stderr


def test_the_replay_of_a_step_is_the_record_to_the_bit_and_ranks_its_documents(run, made):
    tmp_path, sources, steps = made
    file = str(sources["large"][0])
    step = max(step for step, told in steps.items() if step not in (14, 15)
               if (file, GARBAGE) in [(one["file"], one["record"]) for one in told["documents"]])
    before = content_of(tmp_path / "run")
    told = why(run, tmp_path / "run", "--step", step, "--loss", "--out", tmp_path / "again")
    assert content_of(tmp_path / "run") == before
    assert not (tmp_path / "again").exists()
    replay, record = told["replay"], steps_of(tmp_path / "run")[step]
    assert (replay["same"], replay["first_different"]) == (True, 0)
    assert (replay["loss"], replay["grad_norm"], replay["data_hash"]) == (
        record["loss"], record["grad_norm"], record["data_hash"])
    assert step > 8 and replay["from"] == max(s for s in (7, 9, 12, 15) if s < step)
    targets = sum(one["targets"] for one in told["documents"])
    assert replay["targets"] == targets
    assert replay["loss_of_documents"] / targets == pytest.approx(record["loss"], rel=1e-5)
    means = [one["loss_sum"] / one["targets"] for one in told["documents"]]
    worst = told["documents"][means.index(max(means))]
    assert (worst["file"], worst["record"]) == (file, GARBAGE)
    shares = [one["share"] for one in told["documents"]]
    assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1)


def test_a_step_is_told_with_the_batch_and_the_mask_of_its_own_start(run, tmp_path):
    draw = random.Random(5)
    corpus(tmp_path, run, "mixed", [draw.randint(5, 40) for _ in range(30)], 4)
    path = write_config(tmp_path)
    for last, mask, size in ((1, "true", 2), (5, "true", 4), (8, "false", 4)):
        train(run, path, f'data.train=[{{ path = "{tmp_path}/mixed" }}]', f"data.document_mask={mask}",
              f"batch.global_size={size}", f"run.stop_after={last}")
    assert [why(run, tmp_path / "run", "--step", step)["sequences"] for step in (1, 2)] == [2, 4]
    told = why(run, tmp_path / "run", "--step", 5, "--loss", "--out", tmp_path / "again")
    assert told["replay"]["same"]
    mean = told["replay"]["loss_of_documents"] / told["replay"]["targets"]
    assert mean == pytest.approx(steps_of(tmp_path / "run")[5]["loss"], rel=1e-5)


def burst_at(token, folder):
    """A model whose first layer overflows where it reads the token, and nowhere else."""
    torch.manual_seed(1)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(
        vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=256))
    first = model.gpt_neox.layers[0].mlp
    with torch.no_grad():
        model.gpt_neox.embed_in.weight[token] = 0
        model.gpt_neox.embed_in.weight[token, 0] = 1  # 7.9 behind the norm, where others stay below 5
        first.dense_h_to_4h.weight[0] = 0
        first.dense_h_to_4h.weight[0, 0] = 1e3
        first.dense_h_to_4h.bias[0] = -6e3
        first.dense_4h_to_h.weight[:, 0] = 3e36
    model.save_pretrained(folder)


def test_documents_whose_loss_is_no_number_come_first(run, tmp_path):
    burst_at(299, tmp_path / "burst")
    lines = [[(7 * i + j) % 250 for j in range(20)] for i in range(30)]
    lines[GARBAGE - 1][5] = 299  # in tokens 200 to 219, and so in step 2 of 4 sequences
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in lines))
    run("longhaul", "data", "build", tmp_path / "ids.jsonl", "--field", "input_ids", "--vocab-size", 300,
        "--out", tmp_path / "store")
    train(run, write_config(tmp_path), f'model.config="{tmp_path}/burst"', f'init.weights="{tmp_path}/burst"',
          f'data.train=[{{ path = "{tmp_path}/store" }}]', "data.shuffle=false", "data.document_mask=true",
          'resilience.on_bad_step="skip"', "checkpoint.every=1", "run.stop_after=2")
    assert steps_of(tmp_path / "run")[2]["loss"] is None
    told = why(run, tmp_path / "run", "--step", 2, "--loss", "--out", tmp_path / "again")
    assert (told["replay"]["same"], told["replay"]["loss"]) == (True, None)
    # The kernel of attention multiplies what the mask hides by zero, so that nothing in the row is a number.
    found = [(one["record"], one["loss_sum"] is None) for one in told["documents"]]
    assert found[:3] == [(record, True) for record in (GARBAGE - 1, GARBAGE, GARBAGE + 1)]
    assert len(found) == 7 and not any(none for _, none in found[3:])


def test_another_token_in_a_store_is_told(run, made):
    tmp_path, sources, steps = made
    told = steps[LAST]
    one = next(one for one in told["documents"] if one["record"] != GARBAGE)
    store = tmp_path / one["source"].rsplit("/", 1)[1]
    place = Store(store).begin(one["document"])
    record = json.loads((store / "store.json").read_text())
    for shard in record["shards"]:
        if place < shard["tokens"]:
            break
        place -= shard["tokens"]
    path = store / shard["token_file"]["name"]
    good = path.read_bytes()
    try:
        path.write_bytes(good[:2 * place] + bytes([good[2 * place] ^ 1]) + good[2 * place + 1:])
        changed = why(run, tmp_path / "run", "--step", LAST, code=1)
        text = run("longhaul", "why", tmp_path / "run", "--step", LAST, check=False).stdout
    finally:
        path.write_bytes(good)
    assert changed["documents"] == told["documents"]
    assert changed["data_hash"] != changed["recorded_data_hash"] == told["data_hash"]
    assert "OTHER DATA: the data hash is" in text


def test_a_store_without_records_answers_by_shard_and_number(run, made):
    tmp_path, sources, steps = made
    record = tmp_path / "small" / "store.json"
    good = record.read_text()
    names = {(one["store"], one["document"]): (one["file"], one["record"])
             for one in steps[2]["documents"]}
    try:
        old = json.loads(good)
        for shard in old["shards"]:
            shard.pop("record_file")
            shard.pop("lines_before", None)
        record.write_text(json.dumps(old))
        told = why(run, tmp_path / "run", "--step", 2)["documents"]
        numbers = [s["documents"] for s in old["shards"]]
        for one in told:
            if not one["store"].endswith("small"):
                assert (one["file"], one["record"]) == names[one["store"], one["document"]]
                continue
            number, shard = one["document"], 0
            while number >= numbers[shard]:
                number, shard = number - numbers[shard], shard + 1
            assert one["record"] == number
            assert one["file"] == str(record.parent / old["shards"][shard]["token_file"]["name"])
            sights = why(run, tmp_path / "run", "--document", f"{one['file']}:{one['record']}")
            assert 2 in [sight["step"] for sight in sights]
    finally:
        record.write_text(good)


def test_what_is_not_known_is_said(run, made):
    tmp_path = made[0]
    refused = run("longhaul", "why", tmp_path / "run", "--step", LAST + 1, check=False)
    assert refused.returncode == 78 and "has steps 1 to 16" in refused.stderr
    refused = run("longhaul", "why", tmp_path / "run", check=False)
    assert refused.returncode == 78 and "give --step N or --document" in refused.stderr
    moved = tmp_path / "elsewhere"
    (tmp_path / "small").rename(moved)
    try:
        refused = run("longhaul", "why", tmp_path / "run", "--step", 1, check=False)
    finally:
        moved.rename(tmp_path / "small")
    assert refused.returncode == 78 and "cannot be read" in refused.stderr


def test_files_of_ready_ids_and_rows_of_datasets_are_named_without_a_checkpoint_too(run, tmp_path):
    rows = [[(i * 7 + j) % 300 for j in range(32)] for i in range(40)]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    Dataset.from_dict({"input_ids": rows}).save_to_disk(tmp_path / "saved")
    train(run, write_config(tmp_path), "run.stop_after=4",
          f'data.train=[{{ path = "{tmp_path}/ids.jsonl" }}, {{ path = "{tmp_path}/saved" }}]')
    told = [why(run, tmp_path / "run", "--step", step) for step in (1, 4)]
    for one in [one for step in told for one in step["documents"]]:
        saved = one["source"] == f"{tmp_path}/saved"
        assert one["file"] == (one["source"] if saved else str(tmp_path / "ids.jsonl"))
        assert one["record"] - (not saved) in range(40)
        assert one["record"] == one["document"] + (not saved)
    for step in told:
        assert step["recorded_data_hash"] == step["data_hash"]
        assert {one["source"] for one in step["documents"]} == {f"{tmp_path}/ids.jsonl",
                                                               f"{tmp_path}/saved"}
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert [why(run, tmp_path / "run", "--step", step) for step in (1, 4)] == told


@pytest.mark.soak
def test_a_replay_on_other_ranks_says_by_how_much_it_differs(run, made):
    tmp_path, _, steps = made
    words = ["--step", 11, "--loss", "--ranks", 2, "--out", tmp_path / "two"]
    told = why(run, tmp_path / "run", *words)
    replay, record = told["replay"], steps_of(tmp_path / "run")[11]
    assert replay["data_hash"] == record["data_hash"] and replay["ranks"] == 2
    assert replay["loss"] == pytest.approx(record["loss"], rel=1e-5)
    assert replay["same"] == (replay["first_different"] == 0)
    text = run("longhaul", "why", tmp_path / "run", *words).stdout
    assert ("to the last bit" in text) == replay["same"]
    assert ("relative difference" in text) != replay["same"]


@pytest.mark.soak
def test_steps_after_a_rollback_that_cannot_be_trained_again_are_told(run, made):
    tmp_path, _, _ = made
    told = why(run, tmp_path / "run", "--step", 14, "--loss", "--out", tmp_path / "fourteen")
    assert told["replay"]["same"] is False and told["replay"]["first_different"] == 14
    assert "from step 14 on the replay had other data than the run" in told["replay"]["unranked"]
