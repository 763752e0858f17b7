"""Published chat templates print what transformers makes of them, and the tokens that are learned are those that TRL's
variants of the templates mark."""

import json
import os
import re

import pytest
import templates
from conversations import Maker
from programs import run_program

# Templates that print a generator as JSON, which Python refuses; the program prints the list.
PRINTED_HERE_ALONE = {"templates/llama-cpp-deepseek-r1"}


def answers(lines, *arguments):
    """What the tool answers to each line."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    said = run_program("longhaul_chat_tool", *arguments, input=text, encoding="utf-8")
    found = [json.loads(line) for line in said.stdout.split("\n")[:-1]]
    assert len(found) == len(lines), said.stderr
    return found


def in_bytes(text, spans):
    return [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans]


def compare(seeds):
    """Renders conversations of these seeds by all templates; returns the names of those by which one was rendered."""
    cases = [(name, template, Maker(seed).conversation())
             for name, template in templates.all_templates().items() for seed in seeds]
    lines = [{"template": template, "special_tokens": templates.SPECIAL, "day": templates.DAY, **conversation}
             for _, template, conversation in cases]
    rendered, wrong = set(), []
    for (name, template, conversation), ours in zip(cases, answers(lines)):
        marks = re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None
        theirs = templates.as_transformers(template, conversation, marks)
        if isinstance(theirs, Exception):
            if "error" not in ours and name not in PRINTED_HERE_ALONE:
                wrong.append((name, conversation, f"refused with {theirs!r}, printed here"))
            continue
        text, spans = theirs
        rendered.add(name)
        if ours.get("text") != text or marks and ours["generated"] != in_bytes(text, spans):
            wrong.append((name, conversation, theirs, ours))
    assert not wrong, f"{len(wrong)} of {len(cases)} differ, first {wrong[0]}"
    return rendered


def test_every_template_prints_what_transformers_prints():
    rendered = compare(range(4))
    assert len(rendered) > 120


@pytest.mark.soak
@pytest.mark.parametrize("part", range(8))
def test_two_hundred_conversations_are_the_same_in_every_template(part):
    compare(range(100 + 25 * part, 125 + 25 * part))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    texts = [text for pair in templates.training_variants().values() for text in pair]
    tokenizer = templates.byte_tokenizer(templates.control_tokens(texts))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(templates.SPECIAL))
    return tokenizer, folder


def learned(tokenizer, text, side):
    """One True or False for each character of the text: whether a token of it is learned."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    assert side["ids"] == encoding.ids
    chosen = [False] * len(text)
    for (begin, end), target in zip(encoding.offsets, side["is_target"]):
        chosen[begin:end] = [bool(target)] * (end - begin)
    return chosen


def differences(text, ours, theirs):
    """The runs of characters that only one side learns, as ("+", text) where it is ours."""
    runs, begin = [], 0
    for i in range(1, len(text) + 1):
        if i < len(text) and (ours[i], theirs[i]) == (ours[begin], theirs[begin]):
            continue
        if ours[begin] != theirs[begin]:
            runs.append(("+" if ours[begin] else "-", text[begin:i]))
        begin = i
    return runs


def generation_prompts(template, conversation):
    """What the template writes in front of each of the assistant's turns where a model is asked for it; None where the
    template refuses a conversation that ends there."""
    found = {""}
    for i, message in enumerate(conversation["messages"]):
        before = {**conversation, "messages": conversation["messages"][:i]}
        texts = [templates.as_transformers(template, {**before, "add_generation_prompt": asked})
                 for asked in (True, False)]
        if message["role"] == "assistant":
            if any(isinstance(text, Exception) for text in texts):
                return None
            asked, not_asked = (text for text, _ in texts)
            # A template may write its prompt unasked, as behind the last answer of tools.
            begin = len(asked) - 40 if asked == not_asked else len(os.path.commonprefix([asked, not_asked]))
            found.add(asked[begin:])
    return found


def explained(sign, run, prompts):
    """Whether TRL may learn what is not learned here: white space, what the generation prompt writes itself, and an end
    of text behind the end of a turn."""
    bare = run.strip()
    return sign == "-" and (bare in ("</s>", "<|END_OF_TURN_TOKEN|>") or any(bare in prompt for prompt in prompts))


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(50, 250), marks=pytest.mark.soak)])
def test_without_generation_marks_the_turns_are_those_of_trl(tokenizer, seeds):
    encoder, folder = tokenizer
    cases = []
    for name, (original, marked) in templates.training_variants().items():
        for seed in seeds:
            conversation = {**Maker(seed).conversation(), "add_generation_prompt": False}
            theirs = templates.as_transformers(marked, conversation, mask=True)
            plain = templates.as_transformers(original, conversation)
            same = not isinstance(theirs, Exception) and not isinstance(plain, Exception) and theirs[0] == plain[0]
            # A model of images that goes on in one turn where tools have answered.
            if same and theirs[1] and not (name == "diffusion_gemma" and conversation["tools"]):
                cases.append((name, original, conversation, *theirs))
    found = answers([{"template": original, "special_tokens": templates.SPECIAL,
                      "record": {key: conversation[key] for key in ("messages", "tools")}}
                     for _, original, conversation, _, _ in cases], folder)
    for (name, original, conversation, text, spans), ours in zip(cases, found):
        prompts = generation_prompts(original, conversation)
        assert ("error" in ours) == (prompts is None), (name, conversation, ours)
        if prompts is None:
            continue
        theirs = [any(begin <= i < end for begin, end in spans) for i in range(len(text))]
        for sign, run in differences(text, learned(encoder, text, ours["sides"][0]), theirs):
            assert explained(sign, run, prompts), (name, sign, run, conversation)
    assert len({case[0] for case in cases}) >= 25


def test_where_the_assistant_begins_nothing_is_learned_that_trl_does_not_learn(tokenizer):
    encoder, folder = tokenizer
    cases = []
    for name, (original, marked) in templates.training_variants().items():
        for seed in range(900, 904):
            conversation = {**Maker(seed).conversation(greeting=True), "add_generation_prompt": False}
            theirs = templates.as_transformers(marked, conversation, mask=True)
            plain = templates.as_transformers(original, conversation)
            if not isinstance(theirs, Exception) and not isinstance(plain, Exception) and theirs[0] == plain[0]:
                if not (name == "diffusion_gemma" and conversation["tools"]):
                    cases.append((name, original, conversation, *theirs))
    found = answers([{"template": original, "special_tokens": templates.SPECIAL,
                      "record": {key: conversation[key] for key in ("messages", "tools")}}
                     for _, original, conversation, _, _ in cases], folder)
    learned_by = set()
    for (name, _, conversation, text, spans), ours in zip(cases, found):
        if "error" in ours:
            continue
        learned_by.add(name)
        theirs = [any(begin <= i < end for begin, end in spans) for i in range(len(text))]
        for sign, run in differences(text, learned(encoder, text, ours["sides"][0]), theirs):
            assert sign == "-", (name, run, conversation)
    assert len(learned_by) > 10


def test_a_control_token_that_the_prompt_of_a_pair_spells_is_counted_once(tokenizer):
    _, folder = tokenizer
    template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    pair = {"prompt": [{"role": "user", "content": "a<|im_end|>b"}],
            "chosen": [{"role": "assistant", "content": "<|im_end|>yes"}],
            "rejected": [{"role": "assistant", "content": "no<|im_end|><|im_end|>"}]}
    (answer,) = answers([{"template": template, "special_tokens": templates.SPECIAL, "record": pair}], folder)
    assert answer["findings"]["control_tokens_in_messages"] == 4
