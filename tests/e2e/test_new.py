"""longhaul new writes a run file that train takes unchanged, for every family and kind of data."""

import gzip
import json
import re
import shlex
import shutil
import tomllib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bert_examples import small_shards
from datasets import Dataset
from models import make_model
from programs import split
from refusals import refused, refused_without_a_trace
from transformers import BertConfig

LENGTH = 64
ROWS = [[(7 * row + i) % 319 for i in range(LENGTH)] for row in range(200)]
UNEVEN = [*ROWS[:-1], ROWS[-1][:-5]]
KINDS = ["store", "even", "uneven", "lines.jsonl", "table.parquet", "table.arrow", "shards",
         "shards/*.gz"]
FAMILIES = ["llama2_mha", "llama31_scaled", "tied", "mistral", "qwen2", "qwen3", "gpt2", "pythia"]
NOW = [("llama2_mha", "store"), ("mistral", "lines.jsonl"), ("gpt2", "shards")]


def lines_of(rows):
    return "".join(json.dumps({"input_ids": row}) + "\n" for row in rows)


@pytest.fixture(scope="module")
def place(run, tmp_path_factory):
    """The same rows in every kind of data, and a store that was held out of them."""
    root = tmp_path_factory.mktemp("new")
    (root / "lines.jsonl").write_text(lines_of(UNEVEN))
    run("longhaul", "data", "build", "lines.jsonl", "--field", "input_ids", "--vocab-size", 320,
        "--out", "store", "--holdout", "10%", cwd=root)
    Dataset.from_dict({"input_ids": ROWS}).save_to_disk(root / "even")
    Dataset.from_dict({"input_ids": UNEVEN}).save_to_disk(root / "uneven")
    table = pa.table({"input_ids": UNEVEN})
    pq.write_table(table, root / "table.parquet")
    with pa.OSFile(str(root / "table.arrow"), "wb") as file, \
            pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    (root / "shards").mkdir()
    for number, (begin, end) in enumerate([(0, 100), (100, 200)]):
        (root / f"shards/part-{number}.json.gz").write_bytes(
            gzip.compress(lines_of(UNEVEN[begin:end]).encode()))
    make_model("llama2_mha").save_pretrained(root / "models/small")
    return root


def new_and_train(run, place, model, *data):
    """Makes a run file and trains two steps by it unchanged; returns the file's content."""
    out = place / f"{model}.toml".replace("/", "_")
    out.unlink(missing_ok=True)
    said = run("longhaul", "new", model, *data, "--out", out.name, cwd=place).stdout
    assert said.endswith(f"next: longhaul config {out.name}; longhaul train {out.name}\n")
    settings = tomllib.loads(out.read_text())
    tenth = max(settings["run"]["steps"] // 10, 1)
    assert settings["checkpoint"] == {"every": 0, "every_minutes": 10.0,
                                      "milestone_every": tenth}
    run("longhaul", "config", out.name, cwd=place)
    run("longhaul", "train", out.name, "--set", "run.steps=2", cwd=place)
    log = (place / settings["run"]["dir"] / "log.txt").read_text()
    assert "finished step 2 of 2" in log
    shutil.rmtree(place / "runs")
    return settings, out.read_text()


@pytest.mark.parametrize("family,kind", split(zip(FAMILIES, KINDS), NOW))
def test_the_file_of_each_family_and_kind_trains(run, place, family, kind):
    make_model(family).save_pretrained(place / "models" / family)
    settings, text = new_and_train(run, place, f"models/{family}", kind)
    assert settings["init"]["weights"] == f"models/{family}"
    assert settings["data"]["train"] == [{"path": kind}]
    assert 128 <= settings["data"]["seq_len"] <= 512 or kind == "even"
    held_out = settings["data"].get("validation")
    assert held_out == ([{"name": "store-val", "path": "store-val"}] if kind == "store" else None)
    tokens = 12_800 if kind == "even" else 12_795
    if kind != "store":
        assert re.search(f"# .*: {tokens:,} tokens", text)


def test_bert_gets_the_length_of_its_examples(run, place, tmp_path):
    shards = small_shards(run, tmp_path / "bert")
    config = BertConfig(vocab_size=35, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=96, max_position_embeddings=64,
                        architectures=["BertForPreTraining"])
    config.save_pretrained(place / "models/bert")
    settings, text = new_and_train(run, place, "models/bert", str(shards))
    assert settings["data"]["seq_len"] == 32
    assert "init" not in settings and "weights are random" in text


def test_a_bare_configuration_begins_with_random_weights(run, place):
    (place / "models/bare").mkdir()
    shutil.copy(place / "models/small/config.json", place / "models/bare")
    text, other = (run("longhaul", "new", model, "store", cwd=place).stdout
                   for model in ("models/bare", "models/small"))
    bare, trained = tomllib.loads(text), tomllib.loads(other)
    assert "init" not in bare and "weights are random" in text
    assert bare["optimizer"]["lr"] > trained["optimizer"]["lr"]


def test_paths_of_any_name_and_several_sources(run, place):
    model, data = 'my models/it\'s "small"', "data/тест #1"
    shutil.copytree(place / "models/small", place / model)
    shutil.copytree(place / "store", place / data)
    out = "a run.toml"
    said = run("longhaul", "new", model, data, "store/", "--out", out, cwd=place).stdout
    assert said.endswith("next: longhaul config 'a run.toml'; longhaul train 'a run.toml'\n")
    settings = tomllib.loads((place / out).read_text())
    assert settings["model"]["config"] == model
    assert [(s["path"], s["weight"]) for s in settings["data"]["train"]] == \
        [(data, 0.5), ("store/", 0.5)]
    run("longhaul", "train", out, "--set", "run.steps=2", cwd=place)


def test_what_was_held_out_is_never_trained_on(run, place):
    done = run("longhaul", "new", "models/small", "store", "store-val", cwd=place)
    settings = tomllib.loads(done.stdout)
    assert [source["path"] for source in settings["data"]["train"]] == ["store"]
    assert settings["data"]["validation"] == [{"name": "store-val", "path": "store-val"}]
    assert "store-val is held out of another argument" in done.stderr


@pytest.mark.parametrize("spelling", ["./store-val", "{place}/store-val", "store-val/", "stor?-val",
                                      "link-val", "models/../store-val"])
def test_what_was_held_out_is_never_trained_on_by_any_spelling(run, place, spelling):
    (place / "link-val").unlink(missing_ok=True)
    (place / "link-val").symlink_to("store-val")
    done = run("longhaul", "new", "models/small", spelling.format(place=place), "./store",
               cwd=place)
    settings = tomllib.loads(done.stdout)
    assert [source["path"] for source in settings["data"]["train"]] == ["./store"]
    assert settings["data"]["validation"] == [{"name": "store-val", "path": "./store-val"}]
    assert "is held out of another argument" in done.stderr


@pytest.mark.parametrize("data,words", [
    (["store", "stor*"], ["stor*: matches store-val, which was held out of store"]),
    (["even", "[es][vt]*n"], None),
    (["even", "[eu]*ven"], ["[eu]*ven matches files that another argument names, too"]),
    (["even", "./even/"], None),
])
def test_a_pattern_that_names_again_what_was_named_is_refused_or_read_once(run, place, data, words):
    done = run("longhaul", "new", "models/small", *data, cwd=place, check=False)
    if words:
        refused(done, *words)
    else:
        assert tomllib.loads(done.stdout)["data"]["train"] == [{"path": "even"}]
        assert "is named twice and read once" in done.stderr


def test_a_pattern_of_stores_is_validated_on_all_that_was_held_out(run, place):
    for name in ("many/a", "many/b", "many/a-val", "many/b-val"):
        shutil.copytree(place / ("store-val" if name.endswith("val") else "store"), place / name)
    settings = tomllib.loads(run("longhaul", "new", "models/small", "many/?", cwd=place).stdout)
    assert settings["data"]["train"] == [{"path": "many/?"}]
    assert [v["path"] for v in settings["data"]["validation"]] == ["many/a-val", "many/b-val"]


def test_train_warns_of_validation_that_a_pattern_trains_on(run, place):
    text = run("longhaul", "new", "models/small", "store", cwd=place).stdout
    (place / "both.toml").write_text(text.replace('path = "store"', 'path = "./stor*"'))
    for verb in ("config", "train"):
        done = run("longhaul", verb, "both.toml", "--set", "run.steps=1", cwd=place)
        assert "store-val\" is also trained on (" in done.stderr + done.stdout, verb
    shutil.rmtree(place / "runs")


def test_train_warns_of_validation_that_lies_in_a_directory_of_the_training_data(run, place):
    (place / "ids").mkdir()
    for name in ("a", "b"):
        rows = [json.dumps({"input_ids": [number % 7 for number in range(64)]})] * 40
        (place / "ids" / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    text = run("longhaul", "new", "models/small", "ids", cwd=place).stdout
    held_out = '[{ name = "v", path = "ids/b.jsonl" }]'
    for verb in ("config", "train"):
        (place / "overlap.toml").write_text(text)
        done = run("longhaul", verb, "overlap.toml", "--set", "run.steps=1", "--set",
                   f"data.validation={held_out}", cwd=place)
        assert 'data.validation "v" has files that are also trained on (ids/b.jsonl)' in (
            done.stderr + done.stdout), verb
    shutil.rmtree(place / "runs")


def test_the_file_leaves_what_lies_beside_it(run, place, tmp_path):
    (tmp_path / "run.toml.new").write_text("mine")
    (tmp_path / "link.toml").symlink_to("target.toml")
    arguments = ["new", "models/small", "store", "--out"]
    run("longhaul", *arguments, tmp_path / "run.toml", cwd=place)
    assert (tmp_path / "run.toml.new").read_text() == "mine"
    linked = run("longhaul", *arguments, tmp_path / "link.toml", cwd=place, check=False)
    refused(linked, "link.toml is there already")
    assert not (tmp_path / "target.toml").exists()


def test_the_command_for_text_makes_the_store(run, root):
    words = ["new", "models/small", "corpus/*.txt"]
    text = run("longhaul", *words, check=False, cwd=root)
    refused(text, "corpus/*.txt", "longhaul data build")
    build = re.search(r"longhaul (data build .*?);", text.stderr).group(1)
    again = re.search(r"then: longhaul (new .*)", text.stderr).group(1)
    run("longhaul", *shlex.split(build.replace("1%", "20%")), cwd=root)
    settings = tomllib.loads(run("longhaul", *shlex.split(again), cwd=root).stdout)
    assert settings["data"]["train"] == [{"path": "data/corpus"}]
    assert settings["data"]["validation"][0]["path"] == "data/corpus-val"


@pytest.mark.parametrize("arguments,words", [
    (["models/small", "corpus/part-0.jsonl.gz"], ["no field 'input_ids'", "data build"]),
    (["models/small", "corpus"], ["corpus: the directory holds data of several kinds"]),
    (["models/small", "data"], ["is a directory of token stores", "data/mine data/mine-val"]),
    (["models/small", "data/*"], ["data/mine-val, which was held out of data/mine"]),
    (["models/small", "data/mien"], ["did you mean data/mine?"]),
    (["models/small", "models/small"], ["a model directory"]),
    (["models/smal", "data/mine"], ["did you mean models/small?"]),
    (["data/mine", "data/mine"], ["data/mine"]),
    (["models/small", "empty.jsonl"], ["empty.jsonl holds 0 tokens", "less than a sequence"]),
    (["models/pickled", "data/mine"], ["longhaul import"]),
    (["models/small", "data/mine", "--out", "run.toml"], ["run.toml is there already"]),
], ids=lambda value: "-".join(value).replace("/", "_") if len(value) > 1 else None)
def test_what_cannot_be_a_run_is_refused(run, root, arguments, words):
    (root / "empty.jsonl").write_text("")
    (root / "models/pickled").mkdir()
    shutil.copy(root / "models/small/config.json", root / "models/pickled")
    (root / "models/pickled/pytorch_model.bin").write_bytes(b"pickle")
    refused_without_a_trace(run, root, ["new", *arguments], *words)


def test_data_of_another_tokenizer_is_refused_before_the_file_is_written(run, root):
    run("longhaul", "data", "train-tokenizer", "corpus/*.txt", "--vocab-size", 300, "--out",
        "other", cwd=root)
    run("longhaul", "data", "build", "corpus/*.txt", "--tokenizer", "other", "--out", "data/other",
        cwd=root)
    refused_without_a_trace(run, root, ["new", "models/small", "data/other", "--out", "x.toml"],
                            "made with another tokenizer")


def test_a_save_comes_when_its_minutes_are_over(run, root):
    run("longhaul", "train", "run.toml", "--set", "run.steps=3", "--set", "checkpoint.every=0",
        "--set", "checkpoint.every_minutes=1e-9", "--set", "checkpoint.keep=0", cwd=root)
    steps = sorted(path.name for path in (root / "runs/mine/checkpoints").glob("step_*"))
    assert steps == ["step_00000001", "step_00000002", "step_00000003"]
