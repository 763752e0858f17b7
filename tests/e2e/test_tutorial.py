"""Every command of docs/tutorial.md does what the page says, on a small model."""

import json
import math
import pathlib
import re
import shlex

import pytest
from small_model import make_model, write_corpus

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text()
COMMANDS = [shlex.split(line) for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S)
            for line in block.splitlines()]


@pytest.fixture(scope="module")
def typed(run, tmp_path_factory):
    """Each command in the page's order, with what it printed."""
    place = tmp_path_factory.mktemp("tutorial")
    make_model(place / "models" / "Llama-3.2-1B")
    write_corpus(place / "corpus")
    for lines in (place / "corpus").glob("*.gz"):  # a directory of one kind of data
        lines.unlink()
    said = []
    for program, *words in COMMANDS:
        assert program == "longhaul"
        said.append((words, run("longhaul", *words, cwd=place).stdout))
    return place, said


def printed(typed, *words):
    return next(out for command, out in typed[1] if command[:len(words)] == list(words))


def test_every_command_ends_well_and_the_run_makes_its_steps(typed):
    place, said = typed
    assert len(said) >= 12
    steps = [json.loads(line) for line in (place / "runs/Llama-3.2-1B-mine/metrics.jsonl").open()]
    assert any("loss" in step for step in steps)
    assert "validation" in steps[0] and steps[0]["step"] == 0
    assert "complete" in printed(typed, "inspect", "models/Llama-3.2-1B")
    assert (place / "report.html").stat().st_size > 10_000


def test_the_loss_on_text_that_was_held_out_falls(typed):
    before = json.loads(printed(typed, "eval", "models/Llama-3.2-1B"))
    after = json.loads(printed(typed, "eval", "hf/"))
    assert math.isfinite(after["loss"]) and after["loss"] < before["loss"]


def test_every_verb_that_a_page_of_the_first_hour_shows_is_typed_here():
    shown = {words[1] for words in COMMANDS}
    assert {"inspect", "data", "eval", "new", "config", "train", "watch", "report", "export",
            "generate"} <= shown
