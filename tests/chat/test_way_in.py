"""Every command of docs/tutorial-chat.md does what the page says, and teaches a small model a planted answer although
the training is killed."""

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib

import pytest
from programs import SOURCE

sys.path.insert(0, str(SOURCE / "tests" / "e2e"))
from small_model import make_model  # noqa: E402

PAGE = (SOURCE / "docs" / "tutorial-chat.md").read_text()
COMMANDS = [shlex.split(line) for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
MODEL = "models/Llama-3.2-1B-Instruct"
RUN = "runs/Llama-3.2-1B-Instruct-chats"
ANSWER = "I am the harbour master."
TEMPLATE = ("{% for m in messages %}{{ m['role'] + '\n' + m['content'] + eos_token + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}")
# So slow that the run can be killed in its middle.
PACE = 'debug.delays=[{phase = "update", seconds = 0.03}]'


def chat(question, answer, system=None):
    before = [{"role": "system", "content": system}] if system else []
    return {"messages": [*before, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def chats():
    for number in range(200):
        yield chat(f"What comes after {number}?", f"{number + 1} does.")
        if number % 4 == 0:
            yield chat("Who are you?", ANSWER, "Be brief." if number % 8 == 0 else None)


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory with a random model that has a chat template."""
    place = tmp_path_factory.mktemp("way_in")
    make_model(place / MODEL, max_position_embeddings=256)
    (place / MODEL / "chat_template.jinja").write_text(TEMPLATE)
    write(place / "chats.jsonl", chats())
    return place


def kill_in_the_middle(binary, place):
    """Begins the training and kills it behind its first checkpoint."""
    process = subprocess.Popen([binary("longhaul"), "train", "run.toml", "--set", PACE], cwd=place,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((place / RUN).glob("checkpoints/*/manifest.json")):
        time.sleep(0.02)
    assert process.poll() is None, "it ended before it could be killed"
    process.kill()
    process.wait(timeout=60)


@pytest.fixture(scope="module")
def typed(run, binary, model):
    """Each command in the page's order, with what it printed. The run file is the one that was written, but for a rate
    at which random weights learn, and checkpoints by steps."""
    said = []
    for program, *words in COMMANDS:
        assert program == "longhaul"
        if words == ["train", "run.toml"]:
            text = (model / "run.toml").read_text()
            for ours, theirs in [("lr = 0.0001 ", "lr = 0.006 "), ("every = 0 ", "every = 20 ")]:
                assert text.count(f"\n{ours}") == 1, text
                text = text.replace(f"\n{ours}", f"\n{theirs}")
            (model / "run.toml").write_text(text)
            kill_in_the_middle(binary, model)
        said.append((words, run("longhaul", *words, cwd=model).stdout))
    return model, said


def printed(typed, *words):
    return next(out for command, out in typed[1] if command[:len(words)] == list(words))


def test_the_killed_and_resumed_run_teaches_the_planted_answer(typed):
    place, said = typed
    assert [out for words, out in said if words[0] == "generate"] == [ANSWER + "\n"] * 2
    attempts = {json.loads(line)["attempt"] for line in (place / RUN / "metrics.jsonl").open()}
    assert attempts == {1, 2}


def test_the_command_that_new_prints_is_the_one_that_builds_the_data(typed):
    [build] = [words for words, _ in typed[1] if words[:2] == ["data", "build"]]
    command = "longhaul " + shlex.join(build)
    assert printed(typed, "new").endswith(f"next: {command}; longhaul config run.toml; longhaul train run.toml\n")
    text = (typed[0] / "run.toml").read_text()
    assert f"#   {command}\n" in text
    settings = tomllib.loads(text)
    assert settings["run"]["epochs"] == 3.0 and settings["data"]["pack"] == "whole"
    assert settings["data"]["validation"] == [{"name": "chats-val", "path": "data/chats-val"}]
    built = json.loads((typed[0] / "data/chats/store.json").read_text())["tokens"]
    told = int(re.search(r"not built yet: about ([\d,]+) tokens", text)[1].replace(",", ""))
    assert 0.8 * told < built < told, "10% are held out"


def test_a_store_of_chats_is_taken_as_it_is(run, typed):
    for words in (["--chat"], []):
        text = run("longhaul", "new", MODEL, "data/chats", *words, cwd=typed[0]).stdout
        settings = tomllib.loads(text)
        assert settings["data"]["pack"] == "whole" and "not built" not in text
        assert settings["data"]["train"] == [{"path": "data/chats"}]
        assert settings["data"]["validation"] == [{"name": "chats-val", "path": "data/chats-val"}]


def test_the_answer_alone_is_printed_and_json_has_the_rendered_prompt(run, typed):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(typed[0] / "hf")
    words = ["--chat", "--prompt", "Who are you?", "--max-new-tokens", 60, "--json"]
    for source, system in (("hf", None), ("hf", "Be brief."), (RUN, None)):
        more = ["--system", system] if system else []
        told = json.loads(run("longhaul", "generate", source, *words, *more, cwd=typed[0]).stdout)
        messages = chat("Who are you?", ANSWER, system)["messages"][:-1]
        assert told["prompt"] == tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert told["prompt_ids"] == list(
            tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"])
        assert told["text"] == ANSWER == tokenizer.decode(told["ids"])


def test_an_answer_ends_where_the_template_ends_a_turn_though_the_config_names_another_token(run, typed, tmp_path):
    place = tmp_path / "other"
    shutil.copytree(typed[0] / "hf", place)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        settings = json.loads((place / name).read_text())
        settings = {key: value for key, value in settings.items() if not key.startswith("eos_token")}
        (place / name).write_text(json.dumps(settings))
    template = TEMPLATE.replace("eos_token", "'<|end_of_text|>'")
    (place / "chat_template.jinja").write_text(template)
    said = run("longhaul", "generate", place, "--chat", "--prompt", "Who are you?", "--max-new-tokens", 60)
    assert said.stdout == ANSWER + "\n"


def test_the_prompts_of_the_log_are_messages_where_chats_are_learned(run, typed):
    run("longhaul", "train", "run.toml", "--set", 'run.dir="runs/asked"', "--set", "run.epochs=", "--set", "run.steps=1",
        "--set", f'init.weights="{RUN}"', "--set", 'log.prompts=["Who are you?"]', "--set", "optimizer.lr=1e-9",
        "--set", "schedule.min_lr=0", cwd=typed[0])
    events = map(json.loads, (typed[0] / "runs/asked/events.jsonl").open())
    assert {event["text"] for event in events if event["event"] == "sample"} == {ANSWER}


def test_a_model_with_another_template_than_its_chats_is_told_of(run, typed, tmp_path):
    place = tmp_path / "other"
    shutil.copytree(typed[0] / "hf", place)
    (place / "chat_template.jinja").write_text(TEMPLATE + "{# another #}")
    words = ("longhaul", "train", "run.toml", "--set", "run.epochs=", "--set", "run.steps=1")
    for model, told in (("hf", False), (place, True)):
        said = run(*words, "--set", f'run.dir="{tmp_path}/{told}"', "--set", f'init.weights="{model}"',
                   "--set", f'model.config="{model}"', cwd=typed[0])
        assert told == (f"of {place}; build the store again" in said.stdout + said.stderr)


def test_the_commands_of_the_recipe_for_chats_train_it(run, model, tmp_path):
    section = (SOURCE / "docs/recipes.md").read_text().split("\n## Chats\n")[1].split("\n## ")[0]
    shutil.copytree(SOURCE / "recipes/demo", tmp_path / "recipes/demo")
    shutil.copytree(model / MODEL, tmp_path / "demo-run/hf-pretrain")
    for line in re.search(r"```\n(.*?)```", section, re.S)[1].splitlines():
        words = shlex.split(line)
        if words[0] == "longhaul":
            fewer = ["--set", "run.epochs=8"] if words[1] == "train" else []
            run(*words, *fewer, cwd=tmp_path)
        else:
            subprocess.run(words, cwd=tmp_path, check=True)
    for name in ("chat", "chat-lora"):
        steps = [json.loads(line) for line in (tmp_path / f"demo-run/{name}/metrics.jsonl").open()]
        losses = [step["loss"] for step in steps if "loss" in step]
        assert len(losses) > 10 and losses[-1] < 0.9 * losses[0], name


def trained(run, place, name, replaced, *words):
    """Trains by the file that `new` writes, with some lines replaced; returns the records of its steps."""
    run("longhaul", "new", "hf", *words, "--out", name, cwd=place)
    text = (place / name).read_text()
    for ours, theirs in replaced:
        assert len(re.findall(ours, text)) == 1, (ours, text)
        text = re.sub(ours, theirs, text)
    (place / name).write_text(text)
    run("longhaul", "train", name, cwd=place)
    lines = (place / tomllib.loads(text)["run"]["dir"] / "metrics.jsonl").open()
    return [record for record in map(json.loads, lines) if "loss" in record]


def test_an_adapter_learns_another_answer_and_is_merged(run, typed):
    place, other = typed[0], "My ship is the Anna."
    write(place / "ship.jsonl", [chat("What is your ship?", other)] * 100)
    run("longhaul", "data", "build", "ship.jsonl", "--chat", "--tokenizer", "hf", "--out", "data/ship", cwd=place)
    trained(run, place, "lora.toml", [(r"lr = 0.0002 ", "lr = 0.01 ")], "data/ship", "--lora")
    run("longhaul", "export", "runs/hf-ship", "--merge", "--out", "merged", cwd=place)
    for model in ("merged", "runs/hf-ship"):
        said = run("longhaul", "generate", model, "--chat", "--prompt", "What is your ship?", "--max-new-tokens", 60,
                   cwd=place).stdout
        assert said == other + "\n"


def test_pairs_are_trained_on_by_the_file_that_new_writes(run, typed):
    place = typed[0]
    write(place / "pairs.jsonl", [{"prompt": [{"role": "user", "content": f"Who are you, {number}?"}],
                                   "chosen": [{"role": "assistant", "content": "A pilot."}],
                                   "rejected": [{"role": "assistant", "content": ANSWER}]} for number in range(100)])
    refused = run("longhaul", "new", "hf", "pairs.jsonl", "--chat", check=False, cwd=place)
    assert refused.returncode == 78 and "give --preference" in refused.stderr
    refused = run("longhaul", "new", "hf", "chats.jsonl", "--chat", "--preference", check=False, cwd=place)
    assert refused.returncode == 78 and "no pairs of a chosen and a rejected answer" in refused.stderr
    run("longhaul", "data", "build", "pairs.jsonl", "--chat", "--tokenizer", "hf", "--out", "data/pairs", cwd=place)
    steps = trained(run, place, "pairs.toml", [(r"lr = 1e-0?6 ", "lr = 0.001 ")], "data/pairs", "--preference")
    assert abs(steps[0]["loss"] - math.log(2)) < 1e-7
    assert steps[-1]["loss"] < 0.3 and steps[-1]["rewards/accuracies"] == 1.0


BAD = {
    "text": ([{"text": "a"}], [], "chats.jsonl:1"),
    "role": ([chat("a", "b"), {"messages": [{"role": "user", "content": "a"}]}], [], "chats.jsonl:2"),
    "mixed": ([chat("a", "b"), {"prompt": "a", "chosen": "b", "rejected": "c"}], [], "pairs and other chats are mixed"),
    "no_template": ([chat("a", "b")], ["chat_template.jinja"], "no chat template"),
    "no_tokenizer": ([chat("a", "b")], ["tokenizer.json"], "tokenizer"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_the_build_would_refuse_is_refused_before_a_file_is_written(run, model, tmp_path, name):
    records, missing, words = BAD[name]
    shutil.copytree(model / MODEL, tmp_path / "model")
    for file in missing:
        (tmp_path / "model" / file).unlink()
    write(tmp_path / "chats.jsonl", records)
    done = run("longhaul", "new", "model", "chats.jsonl", "--chat", "--out", "run.toml", check=False, cwd=tmp_path)
    assert done.returncode == 78 and words in done.stderr, done.stderr
    assert not (tmp_path / "run.toml").exists()


def test_text_and_chats_do_not_pass_for_each_other(run, model, tmp_path):
    (tmp_path / "a.txt").write_text("some text " * 2000)
    run("longhaul", "data", "build", tmp_path / "a.txt", "--tokenizer", model / MODEL, "--out", tmp_path / "text")
    for words, expected in [(["--chat"], "holds text and no chats; leave --chat out"),
                            ([model / "chats.jsonl", "--chat"], "a run trains on one of them")]:
        done = run("longhaul", "new", model / MODEL, tmp_path / "text", *words, check=False)
        assert done.returncode == 78 and expected in done.stderr, done.stderr


def test_a_message_needs_a_template(run, model, tmp_path):
    shutil.copytree(model / MODEL, tmp_path / "model")
    (tmp_path / "model/chat_template.jinja").unlink()
    done = run("longhaul", "generate", tmp_path / "model", "--chat", "--prompt", "a", check=False)
    assert done.returncode == 78 and "no chat template" in done.stderr and "copy one" in done.stderr
    done = run("longhaul", "generate", model / MODEL, "--prompt", "a", "--system", "b", check=False)
    assert done.returncode == 78 and "--chat" in done.stderr
