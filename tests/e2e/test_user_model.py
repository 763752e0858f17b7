"""A user's own model and text, from the downloaded directory to generated text."""

import filecmp
import json
import os
import pathlib
import shutil

import numpy
import pytest
import torch
from small_model import TRAINING, make_model, transformers_loss, validations, write_corpus
from tokenizers import Tokenizer
from transformers import AutoTokenizer, LlamaForCausalLM

SEQ_LEN = 64
VALIDATED = 32  # validation.batches * batch.global_size
PROMPT = "The statement"


@pytest.fixture(scope="module")
def place(run, tmp_path_factory):
    """Types the commands of a first training one after another; returns the directory they ran
    in."""
    root = tmp_path_factory.mktemp("mine")
    make_model(root / "models" / "small")
    write_corpus(root / "corpus")
    (root / "run.toml").write_text(TRAINING)
    results = {}

    def typed(name, *words):
        results[name] = run("longhaul", *words, cwd=root).stdout

    typed("inspect", "inspect", "models/small")
    typed("data", "data", "build", "corpus/*.jsonl.gz", "corpus/*.txt", "--tokenizer",
          "models/small", "--out", "data/mine", "--holdout", "20%", "--seq-len", SEQ_LEN)
    typed("before", *evaluation("models/small"))
    typed("train", "train", "run.toml")
    typed("run", *evaluation("runs/mine"))
    typed("export", "export", "runs/mine", "--out", "hf", "--shard-size", "200KB")
    typed("after", *evaluation("hf"))
    typed("generate", "generate", "hf", "--prompt", PROMPT, "--temperature", 0,
          "--max-new-tokens", 40, "--dtype", "fp32", "--json")
    typed("text", "generate", "hf", "--prompt", PROMPT, "--temperature", 0,
          "--max-new-tokens", 40, "--dtype", "fp32")
    return root, results


def evaluation(model, data="data/mine-val"):
    return ("eval", model, "--data", data, "--seq-len", SEQ_LEN, "--max-sequences", VALIDATED,
            "--micro-size", 8, "--json")


def losses(run_dir):
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").open()]
    return [r["loss"] for r in records if "grad_norm" in r]


def relative(a, b):
    return abs(a - b) / abs(b)


def test_inspect_calls_the_download_complete(place):
    _, results = place
    assert "complete" in results["inspect"] and "NOT complete" not in results["inspect"]
    assert "tokenizer.json" in results["inspect"]


def test_inspect_names_a_missing_shard(run, place, tmp_path):
    shutil.copytree(place[0] / "models" / "small", tmp_path / "small")
    shards = sorted((tmp_path / "small").glob("model-*.safetensors"))
    assert len(shards) >= 3
    shards[1].unlink()
    result = run("longhaul", "inspect", tmp_path / "small", check=False)
    assert result.returncode == 78
    assert "NOT complete" in result.stdout and f"missing: {shards[1].name}" in result.stdout


def test_the_store_holds_the_tokenizers_ids_and_a_disjoint_holdout(place):
    root, results = place
    assert "special tokens" in results["data"] and "sequences of 64 per epoch" in results["data"]
    train, held = (json.loads((root / "data" / name / "store.json").read_text())
                   for name in ("mine", "mine-val"))
    assert train["documents"] + held["documents"] == 240
    assert 20 <= held["documents"] <= 80
    # The store has whole documents of the corpus, encoded as Hugging Face does, with EOS after
    # each.
    tokenizer = Tokenizer.from_file(str(root / "models/small/tokenizer.json"))
    texts = [path.read_text() for path in sorted((root / "corpus").glob("*.txt"))]
    wanted = {tuple(tokenizer.encode(text).ids + [1]) for text in texts}
    found = {"mine": set(), "mine-val": set()}
    for name, parts in found.items():
        store = root / "data" / name
        tokens = numpy.concatenate([numpy.fromfile(p, dtype=numpy.uint16)
                                    for p in sorted(store.glob("tokens_*.bin"))]).tolist()
        ends = numpy.fromfile(store / "documents_00000.bin", dtype=numpy.uint64).tolist()
        for begin, end in zip([0, *ends], ends):
            parts.add(tuple(tokens[begin:end]))
    assert not found["mine"] & found["mine-val"]
    assert wanted <= found["mine"] | found["mine-val"]


def test_validation_at_step_0_is_the_evaluation_of_the_source(place):
    root, results = place
    before = json.loads(results["before"])
    assert before["sequences"] == VALIDATED and before["targets"] == VALIDATED * SEQ_LEN
    assert relative(validations(root / "runs/mine")[0]["loss"], before["loss"]) <= 1e-6
    assert relative(transformers_loss(root / "models/small", root / "data/mine-val", SEQ_LEN, VALIDATED),
                    before["loss"]) <= 1e-5


def test_a_bf16_model_also_starts_where_its_evaluation_says(run, place, tmp_path):
    root, _ = place
    make_model(tmp_path / "half", dtype="bfloat16")
    text = TRAINING.replace("models/small", str(tmp_path / "half")).replace('"fp32"', '"bf16"')
    (tmp_path / "half.toml").write_text(text.replace("runs/mine", str(tmp_path / "run")))
    run("longhaul", "train", tmp_path / "half.toml", "--set", "run.stop_after=1", cwd=root)
    half = json.loads(run("longhaul", *evaluation(tmp_path / "half"), cwd=root).stdout)
    assert relative(validations(tmp_path / "run")[0]["loss"], half["loss"]) <= 1e-6


def test_the_loss_falls(place):
    root, results = place
    curve = losses(root / "runs/mine")
    assert len(curve) == 40
    assert sum(curve[:3]) / 3 - sum(curve[-3:]) / 3 >= 1.0
    assert json.loads(results["before"])["loss"] - json.loads(results["after"])["loss"] >= 1.0


def test_the_last_validation_is_the_evaluation_of_run_and_export(place):
    root, results = place
    last = validations(root / "runs/mine")[40]["loss"]
    assert relative(json.loads(results["run"])["loss"], last) <= 1e-6
    assert relative(json.loads(results["after"])["loss"], last) <= 1e-6


def test_the_export_loads_in_transformers_with_the_same_loss(place):
    root, results = place
    assert len(list((root / "hf").glob("model-*.safetensors"))) >= 3
    assert relative(transformers_loss(root / "hf", root / "data/mine-val", SEQ_LEN, VALIDATED),
                    json.loads(results["after"])["loss"]) <= 1e-5


def test_the_export_carries_the_tokenizer_files_unchanged(place):
    root, _ = place
    source, export = root / "models/small", root / "hf"
    names = [p.name for p in source.iterdir()
             if p.name.startswith(("tokenizer", "special_tokens", "generation"))]
    assert {"tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= set(names)
    for name in names:
        assert filecmp.cmp(source / name, export / name, shallow=False), name
    assert AutoTokenizer.from_pretrained(export)(PROMPT).input_ids[0] == 0


def test_greedy_text_is_that_of_transformers(place):
    root, results = place
    ours = json.loads(results["generate"])
    tokenizer = AutoTokenizer.from_pretrained(root / "hf")
    model = LlamaForCausalLM.from_pretrained(root / "hf", dtype=torch.float32)
    prompt = tokenizer(PROMPT, return_tensors="pt")
    assert ours["prompt_ids"] == prompt.input_ids[0].tolist()
    theirs = model.generate(**prompt, max_new_tokens=40, do_sample=False, temperature=None,
                            top_p=None)[0, prompt.input_ids.shape[1]:].tolist()
    assert len(theirs) >= 10
    assert [i for i in ours["ids"] if i != 1] == [i for i in theirs if i != 1]
    assert ours["text"] == tokenizer.decode(theirs, skip_special_tokens=True)
    assert results["text"].strip() == (PROMPT + ours["text"]).strip()


def test_nothing_was_left_outside_the_named_places(place):
    root, _ = place
    assert sorted(os.listdir(root)) == ["corpus", "data", "hf", "models", "run.toml", "runs"]
    assert sorted(os.listdir(root / "data")) == ["mine", "mine-val"]
    assert os.listdir(root / "runs") == ["mine"]
    assert sorted(pathlib.Path(root / "runs/mine").glob("*.tmp*")) == []


def test_an_export_says_that_it_writes_wider_weights_than_the_run_computed_with(run, root):
    for dtype in ("bf16", "fp32"):
        sets = [f'run.dir="runs/{dtype}"', "run.steps=1", f'precision.compute="{dtype}"']
        run("longhaul", "train", "run.toml", *[w for s in sets for w in ("--set", s)], cwd=root)

    def exported(source, out, *words):
        said = run("longhaul", "export", source, "--out", out, *words, cwd=root).stdout
        model = LlamaForCausalLM.from_pretrained(root / out, dtype="auto")
        return "note: written in fp32" in said and "--dtype bf16" in said, model.dtype

    assert exported("runs/bf16", "wide") == (True, torch.float32)
    assert exported("runs/fp32", "fp32") == (False, torch.float32)
    assert exported("runs/bf16", "narrow", "--dtype", "bf16") == (False, torch.bfloat16)
    assert exported("narrow", "same") == (False, torch.bfloat16)  # no checkpoint: as it is


def test_a_shard_size_without_a_unit_is_refused_with_what_may_be_meant(run, root):
    done = run("longhaul", "export", "models/small", "--out", "out", "--shard-size", "5", check=False,
               cwd=root)
    assert done.returncode == 78 and "write 5GB, 5MB or 5B" in done.stderr
    assert not (root / "out").exists()
