"""A message of a user reaches a model as its chat template writes it."""

import json
import shutil
import sys

import pytest
from programs import SOURCE

sys.path.insert(0, str(SOURCE / "tests" / "e2e"))
from small_model import make_model  # noqa: E402

MODEL = "models/Llama-3.2-1B-Instruct"
TEMPLATE = ("{% for m in messages %}{{ m['role'] + '\n' + m['content'] + eos_token + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory with a random model that has a chat template."""
    place = tmp_path_factory.mktemp("way_in")
    make_model(place / MODEL, max_position_embeddings=256)
    (place / MODEL / "chat_template.jinja").write_text(TEMPLATE)
    return place


def test_json_has_the_rendered_prompt(run, model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model / MODEL)
    words = ["generate", model / MODEL, "--chat", "--prompt", "Who?", "--system", "Be brief.", "--json"]
    told = json.loads(run("longhaul", *words).stdout)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    assert told["prompt"] == tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert told["prompt_ids"] == list(tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"])


def test_a_message_needs_a_template(run, model, tmp_path):
    shutil.copytree(model / MODEL, tmp_path / "model")
    (tmp_path / "model/chat_template.jinja").unlink()
    done = run("longhaul", "generate", tmp_path / "model", "--chat", "--prompt", "a", check=False)
    assert done.returncode == 78 and "no chat template" in done.stderr and "copy one" in done.stderr
    done = run("longhaul", "generate", model / MODEL, "--prompt", "a", "--system", "b", check=False)
    assert done.returncode == 78 and "--chat" in done.stderr
