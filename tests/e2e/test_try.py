"""longhaul try: the whole chain on a text of one's own."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess

import pytest
from refusals import contents, refused_without_a_trace
from transformers import AutoModelForCausalLM, AutoTokenizer

CHINESE = ("海上生明月，天涯共此時。情人怨遙夜，竟夕起相思。滅燭憐光滿，披衣覺露滋。\n"
           "學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？人不知而不慍，不亦君子乎？\n"
           "道可道，非常道。名可名，非常名。無名天地之始；有名萬物之母。\n")


def on_a_terminal(words, directory):
    """Exit code and all that the program wrote to a terminal of its own."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(words, cwd=directory, stdout=follower, stderr=follower,
                               env={**os.environ, "TERM": "xterm"})
    os.close(follower)
    text = b""
    try:
        while piece := os.read(leader, 65536):
            text += piece
    except OSError:  # its end
        pass
    finally:
        os.close(leader)
    return process.wait(timeout=60), text.decode()


def test_a_chinese_text_becomes_a_model(binary, run, tmp_path):
    for seconds in ("8", "60"):  # in eight seconds a busy machine trains for one step
        place = tmp_path / seconds
        place.mkdir()
        (place / "three poems.txt").write_text(CHINESE * 200)
        code, text = on_a_terminal([binary("longhaul"), "try", "three poems.txt",
                                    "--seconds", seconds], place)
        assert code == 0, text
        if " in 1 step," not in text:
            break
    made = place / "try-three poems"
    # The curve is drawn over and over during the training, and once at the end.
    assert re.search(r"\r\x1b\[K  [▁▂▃▄▅▆▇█]+  loss \d", text)
    curve, first, last = re.search(r"([▁▂▃▄▅▆▇█]+)  loss ([\d.]+) to ([\d.]+) in \d+ steps",
                                   text).groups()
    assert len(curve) > 1 and float(last) < float(first)
    # The commands that it tells a person to type again are those that it ran.
    typed = re.findall(r"^\$ (longhaul .*?)\r?$", text, re.M)
    again = re.findall(r"^  (longhaul .*?)\r?$", text.split("the commands again")[1], re.M)
    assert [command.split()[1] for command in again] == \
        ["data", "data", "train", "generate", "export"]
    assert set(again) < set(typed)
    prompt = shlex.split(again[3])[4]
    assert prompt in CHINESE
    model = AutoModelForCausalLM.from_pretrained(made / "hf")
    tokenizer = AutoTokenizer.from_pretrained(made / "hf")
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.decode(tokenizer.encode(prompt, add_special_tokens=False)) == prompt
    assert run("longhaul", *shlex.split(again[3])[1:], cwd=place).stdout in \
        text.replace("\r\n", "\n")
    before = contents(made / "hf")
    refused_without_a_trace(run, place, ["try", "three poems.txt"], "is there already", "--out")
    assert contents(made / "hf") == before


@pytest.mark.parametrize("name,content,words", [
    ("empty.txt", b"", ["empty.txt: no text is in it"]),
    ("short.txt", b"a few words", ["short.txt: too short", "20.0 kB"]),
    ("photo.jpg", b"\xff\xd8\xff\xe0" * 9000, ["photo.jpg: is no text in UTF-8"]),
    ("program", b"\x7fELF\x02\x01\x01\x00" * 9000, ["program: is no text in UTF-8", "zero"]),
    ("broken.jsonl", b'{"text": "a"}\n{"text": \n' * 900, ["broken.jsonl:2"]),
    ("ids.jsonl", b'{"text": [1, 2]}\n' * 900, ["ids.jsonl:1", "token ids"]),
    ("config.json", b'{\n  "model_type": "llama"\n}\n',
     ["config.json holds a JSON object over several lines", "`jq -c '.' config.json > config.jsonl`"]),
    ("array.json", b'[{"text": "a"}, {"text": "b"}]', ["array.json is one JSON array", "jq -c '.[]'"]),
    ("latin1.jsonl", b'{"text": "caf\xe9"}\n', ["latin1.jsonl:1", "iconv -f LATIN1"]),
    ("missing.txt", None, ["missing.txt"]),
    ("packed.zip", b"PK", ["packed.zip"]),
])
def test_what_is_no_text_is_refused_and_leaves_nothing(run, tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused_without_a_trace(run, tmp_path, ["try", name], *words)


def test_a_terminal_that_closes_leaves_nothing(binary, tmp_path):
    (tmp_path / "text.txt").write_text("Some words of a text to learn from.\n" * 2000)
    child, leader = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execv(binary("longhaul"), ["longhaul", "try", "text.txt", "--out", "made"])
    seen = b""
    while b"Training:" not in seen:
        seen += os.read(leader, 65536)
    assert (tmp_path / "made").exists()
    os.close(leader)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 75
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("number,trains", [(signal.SIGINT, True), (signal.SIGHUP, False)])
def test_a_signal_ends_it_in_order_and_what_it_made_goes(binary, tmp_path, number, trains):
    """One signal is Ctrl-C during the training, the other a terminal that closes during the
    measurement of the speed. The text is a directory of nothing but code."""
    (tmp_path / "src").mkdir()
    for part in range(3):
        (tmp_path / f"src/part{part}.py").write_text(f"def part{part}(): return 1\n" * 400)
    words = [binary("longhaul"), "try", "src/", "--out", "sub/made/"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    made = tmp_path / "sub/made"
    begins = "$ longhaul train sub/made/run.toml"
    for line in process.stdout:
        if line.startswith(begins) and ("--set" not in line) == trains:
            break
    lines = (made / "text.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["text"].startswith("def part0()")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75
    assert f"{number.name}: sub/made was removed; the same command begins again" in errors
    assert not made.exists()
