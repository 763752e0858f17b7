"""The chat templates that the tests compare, and what transformers makes of them."""

import datetime
import pathlib
import re
import sys

from programs import SOURCE

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
DAY = "2026-11-30"


def trl_folder():
    """TRL's templates; of the package only these files are needed, never its code."""
    for place in sys.path:
        folder = pathlib.Path(place, "trl", "chat_templates")
        if folder.is_dir():
            return folder
    raise AssertionError("no trl/chat_templates: tools/deps.sh installs what the tests need")


def read(path):
    return path.read_text(encoding="utf-8")


def all_templates():
    """{name: text} of TRL's templates and of those that lie beside the template engine."""
    engine = SOURCE / ".cache" / "jinja" / "templates"
    assert engine.is_dir(), f"{engine} is missing: run tools/deps.sh"
    paths = sorted(trl_folder().glob("*.jinja")) + sorted(engine.glob("*.jinja"))
    return {f"{path.parent.name}/{path.stem}": read(path) for path in paths}


def training_variants():
    """{name: (template, its variant with {% generation %})} of TRL."""
    found = {}
    for path in sorted(trl_folder().glob("*_training.jinja")):
        original = path.with_name(path.name.replace("_training", ""))
        if original.exists():
            found[original.stem] = read(original), read(path)
    return found


class FixedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DAY)


def as_transformers(template, conversation, mask=False):
    """(text, spans in characters) of transformers; its exception where it refuses."""
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = FixedDay
    messages = [{k: v for k, v in message.items() if v is not None} for message in conversation["messages"]]
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            [messages], tools=conversation["tools"], documents=conversation["documents"], chat_template=template,
            add_generation_prompt=conversation["add_generation_prompt"], return_assistant_tokens_mask=mask, **SPECIAL)
    except Exception as error:  # of any kind: a template may break in any way
        return error
    return texts[0], [(begin, end) for begin, end in spans[0] if end > begin] if mask else []


def control_tokens(texts):
    """What looks like a control token in these templates."""
    kinds = r"<\|[^<>|\s'\"]+\|>|<\|?\w+\|>|<\|\w+>|<\|\"\|>|<｜[^<>\s'\"]+｜>|<(?:start|end)_of_turn>|\[gMASK\]|<sop>"
    return sorted(set(re.findall(kinds, "".join(texts))) | {"<s>", "</s>", "<end_of_utterance>"})


def byte_tokenizer(control):
    """A tokenizer of single bytes and these control tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in control])
    return tokenizer
