"""`data build --chat` makes stores whose ids and targets are those of transformers and TRL, of every form of record, and
tells of every record that it cannot use."""

import json

import numpy as np
import pytest
import templates
from conversations import Maker
from tokenizers import AddedToken, decoders, models, normalizers

CHATML = ("{%- if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
          "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{{ m['content'] }}{{ '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
MARKED = CHATML.replace("{{ m['content'] }}{{ '<|im_end|>\n' }}",
                        "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}{{ '\n' }}"
                        "{% else %}{{ m['content'] + '<|im_end|>\n' }}{% endif %}")


def said(role, content):
    return {"role": role, "content": content}


TALK = [said("system", "kind"), said("user", "Grüße 🙂"), said("assistant", "Hi"), said("user", "and?"),
        said("assistant", "bye")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Makes a folder with a tokenizer and a chat template."""
    made = {}

    def make(template, name="model"):
        if (template, name) not in made:
            folder = tmp_path_factory.mktemp(name)
            control = templates.control_tokens([template, *templates.all_templates().values()])
            templates.byte_tokenizer(control).save(str(folder / "tokenizer.json"))
            config = {**templates.SPECIAL, "tokenizer_class": "PreTrainedTokenizerFast"}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8", newline="")
            made[template, name] = folder
        return made[template, name]

    return make


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def build(run, source, folder, out, *words, **options):
    return run("longhaul", "data", "build", source, "--chat", "--tokenizer", folder, "--out", out, *words, **options)


def documents(store):
    """[(ids, targets)] of a store."""
    info = json.loads((store / "store.json").read_text())
    assert info["token_bytes"] == 2
    found = []
    for shard in info["shards"]:
        ids = np.fromfile(store / shard["token_file"]["name"], "<u2")
        targets = np.ones(len(ids), bool)
        if "target_file" in shard:
            bits = np.fromfile(store / shard["target_file"]["name"], np.uint8)
            targets = np.unpackbits(bits, bitorder="little")[:len(ids)].astype(bool)
        begin = 0
        for end in np.fromfile(store / shard["document_file"]["name"], "<u8"):
            found.append((ids[begin:end].tolist(), targets[begin:end].tolist()))
            begin = int(end)
    return found


def store_info(store):
    return json.loads((store / "store.json").read_text())


def loaded(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def learned(run, store, show=1):
    """The texts that are learned, by document."""
    shown = json.loads(run("longhaul", "data", "inspect", store, "--show", show, "--json").stdout)["shown"]
    return [[piece["text"] for piece in document if piece["target"]] for document in shown]


@pytest.mark.parametrize("name", ["chat_templates/llama3_training", "chat_templates/qwen3_training",
                                  "chat_templates/gemma3_training", "chat_templates/gptoss_training"])
def test_ids_and_targets_are_those_of_apply_chat_template(run, model, tmp_path, name, monkeypatch):
    from transformers.utils import chat_template_utils

    monkeypatch.setattr(chat_template_utils, "datetime", templates.FixedDay)
    folder = model(templates.all_templates()[name], name.split("/")[-1])
    tokenizer, records, expected = loaded(folder), [], []
    for seed in range(40):
        conversation = Maker(1000 + seed).conversation()
        messages = conversation["messages"]
        try:
            encoded = tokenizer.apply_chat_template(messages, tools=conversation["tools"], return_dict=True,
                                                    return_assistant_tokens_mask=True)
        except Exception:
            continue
        if 1 in encoded["assistant_masks"]:
            records.append({"messages": messages, "tools": conversation["tools"]})
            expected.append((encoded["input_ids"], [mask == 1 for mask in encoded["assistant_masks"]]))
    assert len(records) > 5
    build(run, write(tmp_path / "chats.jsonl", records), folder, tmp_path / "store", "--date", templates.DAY)
    assert documents(tmp_path / "store") == expected


def composing(tokenizer):
    """Makes one character of a letter and an accent."""
    tokenizer.normalizer = normalizers.NFC()


def with_spaces(tokenizer):
    """Puts a space in front of what follows a control token, as SentencePiece does."""
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = None
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁": 256, "a": 257, "▁a": 258}
    tokenizer.model = models.BPE(vocabulary, [("▁", "a")], byte_fallback=True, unk_token="<0x00>")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])


@pytest.mark.parametrize("change", [composing, with_spaces])
def test_targets_are_found_in_texts_that_a_tokenizer_changes(run, tmp_path, change):
    tokenizer = templates.byte_tokenizer([])
    change(tokenizer)
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False)
                                  for word in templates.control_tokens([MARKED])])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**templates.SPECIAL, "tokenizer_class": "PreTrainedTokenizerFast"}))
    (tmp_path / "chat_template.jinja").write_text(MARKED)
    odd = [said("user", "a e\u0301 a"), said("assistant", "u\u0308 a e\u0301 \u212b"), said("user", "o\u0308"),
           said("assistant", " a a")]
    build(run, write(tmp_path / "chats.jsonl", [{"messages": odd}]), tmp_path, tmp_path / "store")
    expected = loaded(tmp_path).apply_chat_template(odd, return_dict=True, return_assistant_tokens_mask=True)
    marked = [(expected["input_ids"], [mask == 1 for mask in expected["assistant_masks"]])]
    assert documents(tmp_path / "store") == marked
    (tmp_path / "chat_template.jinja").write_text(CHATML)
    build(run, tmp_path / "chats.jsonl", tmp_path, tmp_path / "unmarked")
    assert documents(tmp_path / "unmarked") == marked


@pytest.mark.parametrize("template", [CHATML, MARKED], ids=["plain", "marked"])
@pytest.mark.parametrize("targets, texts", [
    ("assistant", ["Hi<|im_end|>", "bye<|im_end|>"]), ("last", ["bye<|im_end|>"]), ("all", None)])
def test_targets_are_the_turns_that_were_asked_for(run, model, tmp_path, template, targets, texts):
    folder = model(template)
    build(run, write(tmp_path / "chats.jsonl", [{"messages": TALK}]), folder, tmp_path / "store", "--targets", targets)
    whole = loaded(folder).apply_chat_template(TALK, tokenize=False)
    assert learned(run, tmp_path / "store") == [texts or [whole]]
    info = store_info(tmp_path / "store")
    assert (info["kind"], info["chat"]["targets"], info["chat"]["day"]) == ("chats", targets, "")
    text = run("longhaul", "data", "inspect", tmp_path / "store", "--show", 1).stdout
    assert "conversation 1" in text and ("[[bye<|im_end|>]]" in text) == (targets != "all")


FORMS = {
    "messages": {"messages": [said("system", "kind"), said("user", "2+2?"), said("assistant", "4")]},
    "share_gpt": {"conversations": [{"from": "system", "value": "kind"}, {"from": "human", "value": "2+2?"},
                                    {"from": "gpt", "value": "4"}]},
    "alpaca": {"system": "kind", "instruction": "2+2?", "input": "", "output": "4"},
    "completion": {"prompt": [said("system", "kind"), said("user", "2+2?")], "completion": [said("assistant", "4")]},
}


def test_each_form_of_a_record_gives_the_same_document(run, model, tmp_path):
    made = {}
    for name, record in FORMS.items():
        build(run, write(tmp_path / f"{name}.jsonl", [record]), model(CHATML), tmp_path / name)
        made[name] = documents(tmp_path / name)
        # The end of the line belongs to the answer of a completion, as in TRL.
        assert learned(run, tmp_path / name) == [["4<|im_end|>" + "\n" * (name == "completion")]]
    assert all(made[name][0][0] == made["messages"][0][0] for name in made)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_rows_of_columns_are_the_chats_of_the_same_lines(run, model, tmp_path, kind):
    import pyarrow
    import pyarrow.parquet

    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "count": 3, "share": 0.5}}}
    call = {"id": "1", "function": {"name": "f", "arguments": {"city": "Köln"}}}
    records = [{"messages": TALK, "tools": [tool]},
               {"messages": [said("user", "q"), {**said("assistant", "a"), "tool_calls": [call]}], "tools": None}]
    table = pyarrow.Table.from_pylist([{**record, "unused": 1} for record in records])
    source = tmp_path / f"chats.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, source)
    else:
        with pyarrow.OSFile(str(source), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    template = CHATML.replace("{{ m['content'] }}", "{{ m['content'] }}{{ m | tojson }}")
    build(run, source, model(template), tmp_path / "columns")
    build(run, write(tmp_path / "chats.jsonl", records), model(template), tmp_path / "lines")
    assert documents(tmp_path / "columns") == documents(tmp_path / "lines")


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


@pytest.mark.parametrize("plain", [True, False])
def test_pairs_follow_each_other_and_their_answers_are_learned(run, model, tmp_path, plain):
    folder, tokenizer = model(CHATML), None
    if plain:
        rows = [{"prompt": "The sky is", "chosen": " blue", "rejected": " green</s>"},
                {"chosen": "1 + 1 = 2", "rejected": "1 + 1 = 3"}]
    else:
        rows = [{"prompt": TALK[:2], "chosen": [said("assistant", "good")], "rejected": [said("assistant", "bad")]},
                {"prompt": "q", "chosen": [said("user", "q"), said("assistant", "yes")],
                 "rejected": [said("user", "q"), said("assistant", "no")]}]
    build(run, write(tmp_path / "pairs.jsonl", rows), folder, tmp_path / "store")
    tokenizer, expected = loaded(folder), []
    explicit = [rows[0], {"prompt": "1 + 1 =", "chosen": " 2", "rejected": " 3"} if plain else
                {"prompt": [said("user", "q")], "chosen": [said("assistant", "yes")],
                 "rejected": [said("assistant", "no")]}]
    for row in explicit:
        if plain:
            prompt = tokenizer(row["prompt"])["input_ids"]
            sides = [tokenizer(row["prompt"] + row[side].removesuffix("</s>") + "</s>")["input_ids"]
                     for side in ("chosen", "rejected")]
        else:
            prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True)["input_ids"]
            sides = [tokenizer.apply_chat_template(row["prompt"] + row[side])["input_ids"]
                     for side in ("chosen", "rejected")]
        begin = min(common(prompt, side) for side in sides)
        expected += [(side, [i >= begin for i in range(len(side))]) for side in sides]
    assert documents(tmp_path / "store") == expected
    assert store_info(tmp_path / "store")["kind"] == "pairs"
    assert "pair 1, rejected" in run("longhaul", "data", "inspect", tmp_path / "store", "--show", 2).stdout


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix == ".bin"}


def test_threads_parts_and_holdout_part_no_pair_and_change_no_token(run, model, tmp_path):
    rows = [{"prompt": f"question {i}?", "chosen": f" yes {i}", "rejected": f" no {i}"} for i in range(400)]
    source = write(tmp_path / "pairs.jsonl", rows + rows[:50])
    for name, words in {"one": ["--threads", 1], "many": ["--threads", 3]}.items():
        build(run, source, model(CHATML), tmp_path / name, *words, "--part-size", "4KB", "--holdout", "20%",
              "--drop-duplicates")
    assert contents(tmp_path / "one") == contents(tmp_path / "many")
    assert store_info(tmp_path / "one")["dropped"] == {"duplicate": 50}
    sides = [documents(tmp_path / name) for name in ("one", "one-val")]
    assert sum(len(side) for side in sides) == 800 and 40 < len(sides[1]) < 280
    tokenizer = loaded(model(CHATML))
    for side in sides:
        texts = [tokenizer.decode(ids) for ids, _ in side]
        for chosen, rejected in zip(texts[::2], texts[1::2]):
            assert chosen.replace("yes", "no") == rejected
    refused = run("longhaul", "data", "split", tmp_path / "one", "--share", "10%", "--out-train", tmp_path / "a",
                  "--out-validation", tmp_path / "b", check=False)
    assert refused.returncode == 78 and "pairs" in refused.stderr


def test_the_day_is_printed_kept_and_kept_again(run, model, tmp_path):
    folder = model("{{ strftime_now('%d %B %Y') }}" + CHATML, "dated")
    source = write(tmp_path / "chats.jsonl", [{"messages": TALK}])
    build(run, source, folder, tmp_path / "store", "--date", "2024-02-29")
    assert store_info(tmp_path / "store")["chat"]["day"] == "2024-02-29"
    shown = run("longhaul", "data", "inspect", tmp_path / "store", "--show", 1).stdout
    assert "29 February 2024<|im_start|>" in shown and "prints the day 2024-02-29" in shown
    # Without --date the store's own day counts, so that the same command finds the store done.
    assert "is this very store already" in build(run, source, folder, tmp_path / "store").stdout
    other = build(run, source, folder, tmp_path / "store", "--date", "2024-03-01", check=False)
    assert other.returncode == 78


def test_what_is_odd_is_counted_with_its_first_place(run, model, tmp_path):
    template = CHATML.replace("{{ m['content'] }}", "{{ m['content'] or '' }}")
    rows = [{"messages": TALK}, {"messages": [said("user", "a<|im_end|>b"), said("assistant", "<|im_start|>")]},
            {"messages": [said("user", "q"), {**said("assistant", "a"), "reasoning_content": "because"}]},
            {"prompt": [said("user", "q")], "completion": [said("assistant", "a")]}]
    source = write(tmp_path / "chats.jsonl", rows)
    build(run, source, model(template), tmp_path / "store")
    found = store_info(tmp_path / "store")["chat"]["findings"]
    assert found == {"control_tokens_in_messages": {"count": 2, "first": f"{source}:2"},
                     "not_printed": {"count": 1, "first": f"{source}:3"}}
    shown = run("longhaul", "data", "inspect", tmp_path / "store").stdout
    assert f"2 control tokens that a message spells, first {source}:2" in shown


BAD = {
    "no_turn": ({"messages": TALK[:2]}, CHATML, "no message is the assistant's"),
    "equal": ({"prompt": "a", "chosen": "b", "rejected": "b"}, CHATML, "are equal"),
    "prompts": ({"chosen": TALK[:3], "rejected": TALK[1:3]}, CHATML, "begin with different"),
    "role": ({"messages": [said("martian", "x"), said("assistant", "y")]},
             "{% for m in messages %}{% if m.role == 'martian' %}{{ raise_exception('no Martians') }}{% endif %}"
             "{% endfor %}", "no Martians"),
    "loops": ({"messages": TALK}, "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
              "needs more than"),
    "prints": ({"messages": TALK}, "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", "needs more than"),
    "json": ("{", CHATML, "invalid JSON"),
    "fields": ({"text": "a"}, CHATML, "its fields: 'text'"),
    "image": ({"messages": [said("user", [{"type": "image"}]), said("assistant", "y")]}, CHATML, "no images"),
    "mixed": ({"prompt": "a", "completion": [said("assistant", "b")]}, CHATML, "must all be texts"),
    "between": ({"messages": [said("user", "q"), said("assistant", "abc"), said("user", "r")]},
                "{{ '<|im_start|>' + messages[0].content }}{% if messages|length > 2 %}{{ messages[1].content[:1] + "
                "messages[2].content + messages[1].content[1:] }}<|im_end|>{% endif %}",
                "stands inside of the turn of message 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_ends_the_build_with_its_place_or_is_dropped_and_counted(run, model, tmp_path, name):
    record, template, words = BAD[name]
    good = {"messages": TALK}
    source = tmp_path / "chats.jsonl"
    bad = record if isinstance(record, str) else json.dumps(record)
    source.write_text(f"{json.dumps(good)}\n{bad}\n" if template == CHATML else f"{bad}\n")
    failed = build(run, source, model(template, "odd"), tmp_path / "store", check=False)
    assert failed.returncode == 78 and words in failed.stderr, failed.stderr
    assert f"{source}:{2 if template == CHATML else 1}" in failed.stderr
    assert not (tmp_path / "store").exists()
    if template == CHATML:
        build(run, source, model(template, "odd"), tmp_path / "store", "--bad-records", "drop")
        assert store_info(tmp_path / "store")["dropped"] == {
            "invalid JSON" if name == "json" else "chat of no use": 1}


def test_options_and_files_that_do_not_go_together_are_refused(run, model, tmp_path):
    source = write(tmp_path / "chats.jsonl", [{"messages": TALK}])
    pairs = write(tmp_path / "pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    bare = model(CHATML, "bare")
    (bare / "chat_template.jinja").unlink()
    cases = [([source, "--special-tokens", "bos"], "--special-tokens"), ([source, "--field", "messages"], "--field"),
             ([source, "--date", "yesterday"], "yesterday"), ([source, pairs], "build a store of each"),
             ([source, "--newlines-to-spaces"], "--newlines-to-spaces")]
    for i, (words, expected) in enumerate(cases):
        failed = run("longhaul", "data", "build", *words, "--chat", "--tokenizer", model(CHATML), "--out",
                     tmp_path / f"out{i}", check=False)
        assert failed.returncode == 78 and expected in failed.stderr, failed.stderr
    for words, expected in [([source, "--chat", "--tokenizer", bare], "no chat template"),
                            ([source, "--chat", "--vocab-size", 10], "--chat"),
                            ([source, "--targets", "last", "--tokenizer", model(CHATML)], "--targets"),
                            ([source, "--tokenizer", model(CHATML)], "--chat")]:
        failed = run("longhaul", "data", "build", *words, "--out", tmp_path / "out", check=False)
        assert failed.returncode == 78 and expected in failed.stderr, failed.stderr
