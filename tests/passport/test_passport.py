"""`export --passport` says what a model is and how it behaves: what reads the model agrees with it, and each planted
change is named, by the script beside the passport and by `longhaul verify`."""

import datetime
import http.server
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import types

import pytest
import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment
from programs import SOURCE

sys.path.insert(0, str(SOURCE / "tests" / "e2e"))
from models import make_model as make_random  # noqa: E402
from small_model import TRAINING, documents, make_model, make_tokenizer, validations, write_corpus  # noqa: E402

FAMILIES = {"llama": "llama3_gqa", "qwen": "qwen2", "gpt2": "gpt2", "mixtral": "mixtral"}
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ m['role'] + '\n' + m['content'] | trim + '\n' }}{% endfor %}"
            "{% if tools %}{{ tools | tojson }}{% endif %}{{ strftime_now('%d %B %Y') }}"
            "{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}")


def qwen_tokenizer(folder):
    """Qwen2's tokenizer with the vocabulary of another one."""
    from transformers import Qwen2Tokenizer
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    return Qwen2Tokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])


@pytest.fixture(scope="session")
def place(run, tmp_path_factory):
    """Keys, and an export with a signed passport of each family."""
    place = tmp_path_factory.mktemp("passports")
    for name in ("key", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@test", "-f", place / name],
                       check=True)
    public = (place / "key.pub").read_text().split()
    (place / "signers").write_text(f"key@test {public[0]} {public[1]}\n")
    make_tokenizer(place / "tokenizer", documents(), vocabulary=320)
    for family, name in FAMILIES.items():
        make_random(name).save_pretrained(place / "made" / family)
        if family == "qwen":  # transformers builds the tokenizers of this family by a class of their own
            qwen_tokenizer(place / "tokenizer").save_pretrained(place / "made" / family)
        else:
            shutil.copytree(place / "tokenizer", place / "made" / family, dirs_exist_ok=True)
        (place / "made" / family / "chat_template.jinja").write_text(TEMPLATE)
        (place / "made" / family / "LICENSE").write_text("free\n")
        run("longhaul", "export", place / "made" / family, "--out", place / family, "--passport", "--sign",
            place / "key")
    return place


@pytest.fixture(scope="session")
def script(place):
    """The script beside a passport, as a module: it is imported once, since transformers takes seconds."""
    spec = importlib.util.spec_from_file_location("check_passport", place / "llama" / "check_passport.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(script, capsys, monkeypatch):
    """Runs the script; returns its exit code and its lines."""
    def run_script(folder, *words):
        monkeypatch.setattr(sys, "argv", ["check_passport.py", str(folder), *map(str, words)])
        capsys.readouterr()
        return script.main(), capsys.readouterr().out.splitlines()
    return run_script


def passport_of(folder):
    return json.loads((folder / "passport.json").read_text())


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_agrees_with_the_passport_of_an_export(run, place, check, family):
    code, lines = check(place / family, "--signers", place / "signers")
    assert code == 0, lines
    assert lines[-1].startswith(f"{place / family} is what its passport says: largest difference")
    assert 'Good "longhaul-passport" signature for key@test' in lines[-1]
    behaviour = passport_of(place / family)["behaviour"]
    assert len(behaviour["tokenizer"]["strings"]) == 1000 and len(behaviour["logits"]["prompts"]) == 32
    assert [case["text"] is None for case in behaviour["templates"]["rendered"]] == [False] * 5
    said = run("longhaul", "verify", place / family, "--signers", place / "signers").stdout
    assert "signature for key@test" in said and "every hash is right" in said


def change_json(path, change):
    settings = json.loads(path.read_text())
    change(settings)
    path.write_text(json.dumps(settings))


def set_rope_base(config):
    config["rope_parameters"]["rope_theta"] = 10000.0


def cut_otherwise(tokenizer):
    split = tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    assert r"[^\r\n\p{L}\p{N}]?\p{L}+" in split["Regex"]
    split["Regex"] = split["Regex"].replace(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{L}+")


def change_weight(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x40  # the exponent of the last number, little-endian
    path.write_bytes(content)


def sign_other_words(folder):
    """Puts the signature of other words in the place of the passport's."""
    (folder / "words").write_text("{}")
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "longhaul-passport", "-f", folder.parents[1] / "key",
                    folder / "words"], check=True)
    (folder / "words.sig").replace(folder / "passport.json.sig")
    (folder / "words").unlink()


# What is changed, the beginnings of the lines of the script, and words of `verify`.
PLANTED = {
    "split": (lambda folder: change_json(folder / "tokenizer.json", cut_otherwise),
              ["tokenizer: string ", "files: tokenizer.json has another sha256"], "tokenizer.json has another sha256"),
    "weight": (lambda folder: change_weight(folder / "model.safetensors"),
               ["weights: model.safetensors has another sha256", "logits: prompt "],
               "model.safetensors has another sha256"),
    "rope": (lambda folder: change_json(folder / "config.json", set_rope_base),
             ["config: rope_parameters.rope_theta is 10000.0, the passport has 500000.0",
              "files: config.json has another sha256", "logits: prompt "], "config.json has another sha256"),
    "norm": (lambda folder: change_json(folder / "config.json", lambda config: config.update(rms_norm_eps=1e-3)),
             ["config: rms_norm_eps is 0.001, the passport has 1e-05", "files: config.json has another sha256",
              "logits: prompt "], "config.json has another sha256"),
    "file": (lambda folder: (folder / "LICENSE").write_text("not free\n"),
             ["files: LICENSE has another sha256"], "LICENSE has another sha256"),
    "template": (lambda folder: (folder / "chat_template.jinja").unlink(),
                 ["template: there is no chat template", "files: chat_template.jinja is missing"],
                 "chat_template.jinja is missing"),
    "signature": (sign_other_words, ["signature: passport.json.sig is none of passport.json"], "signature: "),
    "link": (lambda folder: (folder / "additional_chat_templates").symlink_to(folder.parent),
             ["files: additional_chat_templates was added"], "additional_chat_templates was added"),
    "unsigned": (lambda folder: (folder / "passport.json.sig").unlink(), ["signature: passport.json.sig is missing"],
                 "nobody has signed"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_named(run, place, check, name):
    plant, begins, words = PLANTED[name]
    folder = place / "planted" / name
    shutil.copytree(place / "llama", folder)
    plant(folder)
    code, lines = check(folder, "--signers", place / "signers")
    assert code == 1 and len(lines) == len(begins), lines
    for line, begin in zip(lines, begins):
        assert line.startswith(begin), lines
    refused = run("longhaul", "verify", folder, "--signers", place / "signers", check=False)
    assert refused.returncode == 78 and "[verify]" in refused.stderr and words in refused.stderr


def test_a_signature_of_another_key_and_an_added_file_are_refused(run, place, check, tmp_path):
    shutil.copytree(place / "gpt2", tmp_path / "hf")
    (tmp_path / "signers").write_text("other@test " + (place / "other.pub").read_text())
    assert check(tmp_path / "hf", "--signers", tmp_path / "signers")[1] == [
        f"signature: no signer of {tmp_path / 'signers'} has signed"]
    refused = run("longhaul", "verify", tmp_path / "hf", "--signers", tmp_path / "signers", check=False)
    assert refused.returncode == 78 and "names no signer" in refused.stderr
    (tmp_path / "hf/notes.txt").write_text("read")
    said = run("longhaul", "verify", tmp_path / "hf").stdout
    assert "not in the passport: notes.txt" in said and "whose key that is was not checked" in said
    (tmp_path / "hf/special_tokens_map.json").write_text("{}")
    refused = run("longhaul", "verify", tmp_path / "hf", check=False)
    assert refused.returncode == 78 and "special_tokens_map.json was added" in refused.stderr


def test_weights_that_were_added_are_named_since_transformers_loads_them(run, place, check, tmp_path):
    run("longhaul", "export", place / "made/llama", "--out", tmp_path / "hf", "--passport", "--shard-size", "100kB")
    assert len(list((tmp_path / "hf").glob("*.safetensors"))) > 1
    shutil.copy(place / "llama/model.safetensors", tmp_path / "hf")
    change_weight(tmp_path / "hf/model.safetensors")
    code, lines = check(tmp_path / "hf")
    assert code == 1 and lines[0] == "weights: model.safetensors was added", lines
    assert [line.split(" ")[0] for line in lines] == ["weights:", "logits:"]


def test_a_passport_of_somebody_hostile_reaches_neither_other_files_nor_the_terminal(place, check, tmp_path):
    shutil.copytree(place / "gpt2", tmp_path / "hf")
    (tmp_path / "hf/passport.json.sig").unlink()
    (tmp_path / "secret").write_text("mine")

    def change(passport):
        passport["files"] |= {name: {"bytes": 4, "sha256": "0"} for name in ("../secret", "\x1b[2J", "/etc/passwd")}
        passport["config"]["\x1b[31m"] = "\x1b]0;title\x07"
        passport["behaviour"]["tokenizer"]["with_special_tokens"]["ids"] = "\x1b[1A"
        passport["behaviour"]["tokenizer"]["transformers_differs"] = ["\x1b[1A"]

    change_json(tmp_path / "hf/passport.json", change)
    code, lines = check(tmp_path / "hf")
    assert code == 1 and not any("\x1b" in line or "\x07" in line for line in lines), lines
    files = next(line for line in lines if line.startswith("files: "))
    assert files == r"files: ../secret lies outside the folder, \x1b[2J is missing, /etc/passwd lies outside the folder"


class FakeLlama:
    """Computes with transformers what the package of llama.cpp would compute, with the names of that package."""

    def __init__(self, path, n_ctx, logits_all, verbose, type_k=1, type_v=1):
        assert (n_ctx, logits_all, verbose, type_k, type_v) == (512, True, False, 0, 0)
        self.inner, self._model = self.made(path), self
        self.metadata = {"tokenizer.chat_template": self.inner.tokenizer.chat_template}

    def tokenize(self, text, add_bos, special):
        assert special
        return self.inner.ids(text.decode(), add_bos)

    def token_eos(self):
        return self.inner.tokenizer.eos_token_id

    def token_bos(self):
        return -1 if self.inner.tokenizer.bos_token_id is None else self.inner.tokenizer.bos_token_id

    def token_get_text(self, number):
        assert number >= 0
        return self.inner.tokenizer.convert_ids_to_tokens(number)

    def reset(self):
        self.scores = None

    def eval(self, ids):
        self.scores = self.inner.model(torch.tensor([ids])).logits[0].detach().numpy()


class FakeFormatter:
    """As Jinja2ChatFormatter of version 0.3.36, which takes the day of the datetime of its module."""

    def __init__(self, template, eos_token, bos_token, add_generation_prompt=True):
        self.names = {"eos_token": eos_token, "bos_token": bos_token, "add_generation_prompt": add_generation_prompt}
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.template = environment.from_string(template)

    def __call__(self, messages, tools):
        def strftime_now(form):
            return sys.modules["llama_cpp.llama_chat_format"].datetime.now().strftime(form)
        return types.SimpleNamespace(prompt=self.template.render(
            messages=messages, tools=tools, strftime_now=strftime_now, **self.names))


@pytest.mark.parametrize("family", FAMILIES)
def test_llama_cpp_is_asked_in_fp32_and_on_the_day_of_the_passport(place, script, check, monkeypatch, family):
    package, formats = (types.ModuleType(name) for name in ("llama_cpp", "llama_cpp.llama_chat_format"))
    package.Llama, package.llama_chat_format = FakeLlama, formats
    formats.Jinja2ChatFormatter, formats.datetime = FakeFormatter, datetime.datetime
    monkeypatch.setitem(sys.modules, "llama_cpp", package)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_chat_format", formats)
    monkeypatch.setattr(FakeLlama, "made", lambda _, path: script.Transformers(path, None), raising=False)
    code, lines = check(place / family, "--with", "llama-cpp", "--model", place / family)
    assert code == 0, lines


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that computes with transformers. `server.model` is the script's consumer."""

    def answer(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self):
        self.answer({"data": [{"id": "m"}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.server.model
        if self.path == "/tokenize":
            return self.answer({"tokens": model.ids(asked["prompt"], asked["add_special_tokens"])})
        rows = model.scores(asked["prompt"], [0] * len(asked["prompt"]))
        return self.answer({"choices": [{"logprobs": {
            "token_logprobs": [None] + [row[0] for row in rows] + [-1.0],
            "top_logprobs": [None] + [{"a": row[1], "b": row[1] - 1} for row in rows] + [{"a": -1.0}]}}]})

    def log_message(self, *_):
        pass


def test_a_server_is_compared_by_its_address(place, script, check):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    only = place / "only"
    only.mkdir()
    shutil.copy(place / "mixtral/passport.json", only)
    server.model = script.Transformers(place / "mixtral", None)
    code, lines = check(only, "--with", address)
    count = len(passport_of(only)["files"])
    assert lines[0] == f"note: {count} files of the passport are not here, and were not compared"
    assert code == 0 and lines[1].startswith("note: templates not compared: a server does not show"), lines
    server.model = script.Transformers(place / "llama", None)
    code, lines = check(only, "--with", address)
    assert code == 1 and [line.split(" ")[0] for line in lines[2:]] == ["logits:"], lines
    server.shutdown()


def test_ranks_that_split_the_model_write_the_same_behaviour(run, place):
    run("longhaul", "export", place / "made/llama", "--out", place / "split", "--passport", "--tp", "2", ranks=2)
    one, two = (passport_of(place / name)["behaviour"] for name in ("llama", "split"))
    for a, b in zip(one["logits"]["prompts"], two["logits"]["prompts"], strict=True):
        assert a["ids"] == b["ids"] and a["best"] == b["best"]
        assert max(abs(x - y) for x, y in zip(a["log_probs"], b["log_probs"], strict=True)) < 1e-5
    del one["logits"], two["logits"]
    assert one == two


def test_a_run_is_told_with_its_data_and_its_base(run, check, tmp_path):
    make_model(tmp_path / "models/small")
    write_corpus(tmp_path / "corpus")
    run("longhaul", "data", "build", tmp_path / "corpus" / "*.txt", "--tokenizer", tmp_path / "models/small", "--out",
        tmp_path / "data/mine", "--holdout", "20%")
    (tmp_path / "run.toml").write_text(TRAINING)
    run("longhaul", "train", "run.toml", "--set", "run.steps=2", "--set", "validation.every=2", "--set",
        "checkpoint.every=1", cwd=tmp_path)
    said = run("longhaul", "export", "runs/mine", "--out", "hf", "--dtype", "bf16", "--passport", cwd=tmp_path).stdout
    assert "note: the passport says nothing of the chat templates: no chat template" in said
    passport = passport_of(tmp_path / "hf")
    step = tmp_path / "runs/mine/checkpoints/step_00000002"
    state = json.loads(next(step.glob("*state.json")).read_text())
    identity = json.loads((tmp_path / "runs/mine/run.json").read_text())["run"]
    assert (passport["run"]["identity"], passport["run"]["step"]) == (identity, 2)
    assert passport["run"]["batch_hash_chain"] == state["batch_hash"]
    assert passport["run"]["settings"] == state["config"]
    [source], [phase] = passport["run"]["sources"], state["cursor"]["phases"]
    assert source["tokens"] == 2 * 16 * 64
    assert source["fingerprint"] == phase["sources"][0]["fingerprint"]
    assert source["epochs"] == pytest.approx(2 * 16 / phase["sources"][0]["num_sequences"])
    loss = validations(tmp_path / "runs/mine")[2]["loss"]
    assert passport["run"]["validation"] == [{"name": "mine", "step": 2, "loss": pytest.approx(loss, rel=1e-6)}]
    base = passport["base"]["files_at_the_export"]
    assert sorted(base) == sorted(path.name for path in (tmp_path / "models/small").glob("*.safetensors"))
    run("longhaul", "export", "runs/mine", "--average", "2,1", "--out", "mean", "--passport", cwd=tmp_path)
    assert passport_of(tmp_path / "mean")["run"] == passport["run"] | {"mean_of_steps": [1, 2]}
    code, lines = check(tmp_path / "hf")
    assert code == 0 and lines[0] == "note: the passport says nothing of the templates", lines
    assert lines[1].endswith("the passport is not signed")


REFUSED = {
    "key": (["--passport", "--sign", "nowhere"], "ssh-keygen does not sign with"),
    "gguf": (["--passport", "--format", "gguf"], "--passport is for --format hf"),
    "alone": (["--sign", "key"], "--sign requires --passport"),
}


def test_a_key_is_tried_where_no_other_user_can_write(run, place, tmp_path):
    """A program in the place of ssh-keygen tells the mode of the folder in which it is to sign."""
    (tmp_path / "ssh-keygen").write_text(
        f'#!/bin/sh\nfor last; do :; done\nstat -c "%a %n" "$(dirname "$last")" >> {tmp_path}/told\n'
        f'exec {shutil.which("ssh-keygen")} "$@"\n')
    (tmp_path / "ssh-keygen").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    run("longhaul", "export", place / "made/gpt2", "--out", tmp_path / "hf", "--passport", "--sign", place / "key",
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "tmp")})
    mode, folder = (tmp_path / "told").read_text().splitlines()[0].split(" ", 1)
    assert mode == "700" and folder.startswith(f"{tmp_path}/tmp/longhaul-sign-")
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(run, place, tmp_path, name):
    arguments, words = REFUSED[name]
    refused = run("longhaul", "export", place / "made/gpt2", "--out", tmp_path / "out", *arguments, check=False,
                  cwd=tmp_path)
    assert refused.returncode == 78 and words in refused.stderr, refused.stderr
    assert not list(tmp_path.iterdir())
