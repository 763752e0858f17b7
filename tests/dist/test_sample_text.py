"""What the model puts after a prompt, told while it trains: the same in every layout, and the training
stays bit for bit what it is without."""

import json
import pathlib
import shutil
import sys

import pytest
from programs import later

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, final, tensors, write_config  # noqa: E402

CONFIG_ERROR = 78
PROMPTS = ["Once upon a time", "a", "two words, or three"]
FP32 = ['precision.compute="fp32"']
ASKED = [f"log.prompts={json.dumps(PROMPTS)}", "log.prompts_every=4", "log.prompt_tokens=9"]
LAYOUTS = {"one": (1, []), "tp2": (2, ["parallel.tp=2"]), "cp2": (2, ["parallel.cp=2"]),
           "pp2": (2, ["parallel.pp=2"]), "zero3": (2, ["parallel.zero=3"]),
           "tp2_whole_pp2": (4, ["parallel.tp=2", "parallel.pp=2", "parallel.sequence=false"])}


@pytest.fixture(scope="session")
def tokenizer(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "text.txt").write_text("once upon a time there were two or three words\n" * 20)
    run("longhaul", "data", "train-tokenizer", folder / "text.txt", "--vocab-size", 290, "--out",
        folder / "made")
    return folder / "made/tokenizer.json"


@pytest.fixture
def config(tmp_path, tokenizer):
    def call(name):
        path = write_config(tmp_path, name)
        shutil.copy(tokenizer, tmp_path / "model")
        return path

    return call


def train(run, path, *sets, ranks=1, check=True):
    words = [word for one in sets for word in ("--set", one)]
    return run("longhaul", "train", path, *words, ranks=ranks, check=check)


def samples(run_dir):
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    events = [e for e in map(json.loads, lines) if e["event"] == "sample"]
    return [(event["step"], event["prompt"], event["text"]) for event in events]


@pytest.mark.parametrize("name", ["zero3", "tp2_whole_pp2", *later("one", "tp2", "cp2", "pp2")])
def test_prompts_are_continued_alike_in_every_layout_and_change_no_bit(run, config, tmp_path, name):
    ranks, layout = LAYOUTS[name]
    layout = [*layout, *FP32]
    train(run, config("one"), *FP32, *ASKED)
    train(run, config("asked"), *layout, *ASKED, ranks=ranks)
    train(run, config("plain"), *layout, ranks=ranks)
    told = samples(tmp_path / "asked")
    assert [(step, prompt) for step, prompt, _ in told] == [
        (step, prompt) for step in (0, 4, 8) for prompt in PROMPTS]
    assert told == samples(tmp_path / "one")
    assert curve(tmp_path / "asked") == curve(tmp_path / "plain")
    assert tensors(final(tmp_path / "asked")) == tensors(final(tmp_path / "plain"))


def test_the_last_continuations_are_those_of_generate(run, config, tmp_path):
    train(run, config("run"), *FP32, *ASKED)
    log = (tmp_path / "run/log.txt").read_text()
    for _, prompt, text in samples(tmp_path / "run")[-len(PROMPTS):]:
        done = run("longhaul", "generate", tmp_path / "run", "--prompt", prompt, "--dtype", "fp32",
                   "--max-new-tokens", 9, "--json")
        assert json.loads(done.stdout)["text"] == text
        assert f'sample: "{prompt}" -> "' in log


def test_a_prompt_without_room_in_a_sequence_is_refused_before_the_first_step(run, config, tmp_path):
    result = train(run, config("run"), 'log.prompts=["x"]', "log.prompt_tokens=40", check=False)
    assert result.returncode == CONFIG_ERROR, result.stderr
    assert "40 more (log.prompt_tokens) have no room in a sequence of 32" in result.stderr
    assert not (tmp_path / "run/metrics.jsonl").exists() or not curve(tmp_path / "run")


def test_without_a_tokenizer_the_prompts_are_refused(run, tmp_path):
    result = train(run, write_config(tmp_path), *ASKED, check=False)
    assert result.returncode == CONFIG_ERROR, result.stderr
    assert "log.prompts: no tokenizer.json" in result.stderr
