#!/usr/bin/env python3
"""Compares what reads a model with the model's passport: its files, the tokens of hard texts, the texts of
conversations, and log-probabilities.

    python3 check_passport.py                                    transformers, of the folder of this script
    python3 check_passport.py --with llama-cpp --model a.gguf
    python3 check_passport.py --with http://127.0.0.1:8000       a server with /v1/completions, as OpenAI's

Prints a line for each kind of difference, tokenizers first, and ends with 1 if there is one. It needs nothing but the
program that reads the model, and ssh-keygen for the signature."""

import argparse
import datetime
import fnmatch
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

NAMESPACE = "longhaul-passport"
WEIGHTS = (".safetensors", ".safetensors.index.json")
# The names in a folder, in lower case, that a program may load a model from.
LOADED = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.py", "*.index.json", "config.json",
          "generation_config.json", "*processor*.json", "*tokenizer*", "*.model", "*.spm", "*.tiktoken", "tekken*",
          "*vocab*", "encoder.json", "merges.txt", "bpe.codes", "dict*.txt", "added_tokens.json",
          "special_tokens_map.json", "chat_template*", "additional_chat_templates*")


class CannotTell(Exception):
    """What reads the model has no way to say this."""


def calendar_of(day):
    """The class datetime on this day."""
    class FixedDay(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromisoformat(day)
    return FixedDay


class Transformers:
    has_files = True

    def __init__(self, folder, _options):
        self.folder = folder

    @functools.cached_property
    def tokenizer(self):
        import transformers
        return transformers.AutoTokenizer.from_pretrained(self.folder)

    @functools.cached_property
    def model(self):
        import transformers
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder).float().eval()

    def ids(self, text, special):
        return self.tokenizer.encode(text, add_special_tokens=special)

    def text(self, case, day):
        from transformers.utils import chat_template_utils
        if self.tokenizer.chat_template is None:
            return None
        chat_template_utils.datetime = calendar_of(day)
        return self.tokenizer.apply_chat_template(
            case["messages"], tools=case["tools"], add_generation_prompt=case["add_generation_prompt"], tokenize=False)

    def scores(self, ids, best):
        """For each id but the first: its log-probability, the largest one, and that of the id of `best`."""
        import torch
        with torch.no_grad():
            rows = torch.log_softmax(self.model(torch.tensor([ids])).logits[0, :-1].double(), dim=-1)
        return [(row[i].item(), row.max().item(), row[b].item()) for row, i, b in zip(rows, ids[1:], best)]


class LlamaCpp:
    has_files = False

    def __init__(self, folder, options):
        import llama_cpp
        path = options.model or next(iter(sorted(folder.glob("*.gguf"))), None)
        if path is None:
            sys.exit(f"{folder} has no file in GGUF; name it with --model")
        fp32 = 0  # GGML_TYPE_F32; llama.cpp keeps keys and values in fp16 otherwise
        self.model = llama_cpp.Llama(str(path), n_ctx=512, logits_all=True, verbose=False, type_k=fp32, type_v=fp32)

    def ids(self, text, special):
        return self.model.tokenize(text.encode(), add_bos=special, special=True)

    def text(self, case, day):
        from llama_cpp import llama_chat_format
        template = self.model.metadata.get("tokenizer.chat_template")
        if template is None:
            return None
        llama_chat_format.datetime = calendar_of(day)
        ids = self.model.token_eos(), self.model.token_bos()
        eos, bos = ("" if i == -1 else self.model._model.token_get_text(i) for i in ids)
        write = llama_chat_format.Jinja2ChatFormatter(template, eos, bos,
                                                      add_generation_prompt=case["add_generation_prompt"])
        return write(messages=case["messages"], tools=case["tools"]).prompt

    def scores(self, ids, best):
        import numpy
        self.model.reset()
        self.model.eval(ids)
        rows = numpy.asarray(self.model.scores[:len(ids) - 1], dtype=numpy.float64)
        rows -= numpy.logaddexp.reduce(rows, axis=1, keepdims=True)
        return [(row[i], row.max(), row[b]) for row, i, b in zip(rows, ids[1:], best)]


class Server:
    has_files = False

    def __init__(self, _folder, options):
        self.url = options.consumer.rstrip("/").removesuffix("/v1")
        self.name = options.model or self.ask("/v1/models")["data"][0]["id"]

    def ask(self, path, body=None):
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, body and json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def ids(self, text, special):
        try:
            body = {"model": self.name, "prompt": text, "add_special_tokens": special}  # as vLLM names them
            tokens = self.ask("/tokenize", body)["tokens"]
            if not tokens:
                tokens = self.ask("/tokenize", {"content": text, "add_special": special})["tokens"]  # as llama.cpp
            return tokens
        except urllib.error.HTTPError as error:
            if error.code in (404, 405):
                raise CannotTell("the server has no /tokenize") from None
            raise

    def text(self, _case, _day):
        raise CannotTell("a server does not show what its template makes of a conversation")

    def scores(self, ids, _best):
        body = {"model": self.name, "prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
        found = self.ask("/v1/completions", body)["choices"][0]["logprobs"]
        given, tops = found["token_logprobs"][1:len(ids)], found["top_logprobs"][1:len(ids)]
        # A server names its likeliest token by its text alone, which says nothing of its id.
        return [(one, max(top.values()), max(top.values())) for one, top in zip(given, tops)]


def shown(value, most=60):
    text = repr(value)
    return text if len(text) <= most else text[:most] + " ..."


def say(text):
    """Prints a line that may have been written by anybody: a terminal obeys no character of it."""
    print("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


def tokenizer_difference(consumer, facts):
    for number, one in enumerate(facts["strings"]):
        if (ids := list(consumer.ids(one["text"], False))) != one["ids"]:
            return (f"tokenizer: string {number} gives ids {shown(ids)}, the passport has {shown(one['ids'])} "
                    f"({shown(one['text'], 30)})")
    one = facts["with_special_tokens"]
    if one and (ids := list(consumer.ids(one["text"], True))) != one["ids"]:
        return (f"tokenizer: {shown(one['text'])} with special tokens gives ids {shown(ids)}, the passport has "
                f"{shown(one['ids'])}")
    return None


def template_difference(consumer, facts):
    for number, case in enumerate(facts["rendered"]):
        if case["text"] is None:
            continue
        text = consumer.text(case, facts["day"])
        if text is None:
            return "template: there is no chat template, and the passport has one"
        if text != case["text"]:
            at = next((i for i, (a, b) in enumerate(zip(text, case["text"])) if a != b),
                      min(len(text), len(case["text"])))
            return (f"template: conversation {number} differs from character {at} on: {shown(text[at:], 30)}, the "
                    f"passport has {shown(case['text'][at:], 30)}")
    return None


def fields(value, name=""):
    """The fields of a JSON object, also of those inside it, by their names."""
    if not isinstance(value, dict):
        return {name: value}
    return {key: one for inner, part in value.items()
            for key, one in fields(part, f"{name}.{inner}" if name else inner).items()}


def config_difference(folder, passport):
    path = folder / "config.json"
    if not path.is_file():
        return None
    now, then = fields(json.loads(path.read_text())), fields(passport["config"])
    def at(values, key):
        return shown(values[key]) if key in values else "nothing"
    words = [f"{key} is {at(now, key)}, the passport has {at(then, key)}"
             for key in sorted(now.keys() | then.keys()) if now.get(key) != then.get(key)]
    return "config: " + "; ".join(words) if words else None


def sha256_of(path):
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def loaded_names(folder):
    """The names of files and links, also in folders, that a program may load a model from."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*"))
             if path.is_symlink() or not path.is_dir()]
    return [name for name in names if any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in LOADED)]


def file_differences(folder, passport, all_needed):
    """Lines about files that are not those of the passport, weights first."""
    problems, absent = [], 0
    for name, fact in passport["files"].items():
        path, inside = folder / name, pathlib.PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            problems.append((name, "lies outside the folder"))
        elif not path.is_file():
            problems += [(name, "is missing")] * all_needed
            absent += not all_needed
        elif sha256_of(path) != fact["sha256"]:
            problems.append((name, "has another sha256"))
    if absent:
        print(f"note: {absent} files of the passport are not here, and were not compared")
    if all_needed:
        problems += [(name, "was added") for name in loaded_names(folder) if name not in passport["files"]]
    lines = [(kind, ", ".join(f"{name} {what}" for name, what in problems if name.endswith(WEIGHTS) == of_kind))
             for kind, of_kind in (("weights", True), ("files", False))]
    return [f"{kind}: {words}" for kind, words in lines if words]


def logit_difference(consumer, facts, tolerance):
    """A line about the first token beyond the tolerance, or the largest difference of all."""
    largest = 0.0
    for number, prompt in enumerate(facts["prompts"]):
        rows = consumer.scores(prompt["ids"], prompt["best"])
        if len(rows) != len(prompt["log_probs"]):
            return f"logits: prompt {number} has {len(rows)} log-probabilities, not {len(prompt['log_probs'])}"
        for at, (given, most, best) in enumerate(rows):
            far = max(abs(given - prompt["log_probs"][at]), abs(most - prompt["best_log_probs"][at]),
                      (most - best) / 2)
            if not far <= tolerance:  # also where it is no number
                return (f"logits: prompt {number} differs by {far:.3g} at token {at + 1}; {tolerance:g} is allowed "
                        f"(--tolerance)")
            largest = max(largest, far)
    return largest


def signature_difference(folder, signers):
    """A line about a wrong signature, or what is to be said of a right one."""
    passport, signature = folder / "passport.json", folder / "passport.json.sig"
    if not signature.exists():
        return (f"signature: {signature.name} is missing", "") if signers else (None, "the passport is not signed")
    if not shutil.which("ssh-keygen"):
        line = "there is no ssh-keygen, which the signature is checked with"
        return (f"signature: {line}", "") if signers else (None, line)
    words = ["ssh-keygen", "-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature)]
    if signers:
        found = subprocess.run(["ssh-keygen", "-Y", "find-principals", "-s", str(signature), "-f", signers],
                               capture_output=True, text=True)
        if found.returncode != 0:
            return f"signature: no signer of {signers} has signed", ""
        words = ["ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-s", str(signature), "-f", signers, "-I",
                 found.stdout.splitlines()[0]]
    with passport.open("rb") as text:
        result = subprocess.run(words, stdin=text, capture_output=True, text=True)
    if result.returncode != 0:
        return f"signature: {signature.name} is none of {passport.name}", ""
    return None, result.stdout.strip() + ("" if signers else "; whose key that is was not checked (--signers)")


def asked(what, check, *arguments):
    """The line of a check, which what reads the model may be unable to make."""
    try:
        return check(*arguments)
    except CannotTell as why:
        say(f"note: {what} not compared: {why}")
        return None
    except Exception as problem:  # of any library
        return f"{what}: {type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem) else ''}"


def compare(folder, passport, kind, options):
    """The lines about what differs, and what is to be said where nothing does."""
    behaviour, said, problems = passport["behaviour"], [], []
    files = file_differences(folder, passport, kind.has_files)  # before a program loads them
    consumer = kind(folder, options)
    for name, check in (("tokenizer", tokenizer_difference), ("templates", template_difference)):
        if behaviour[name] is None:
            print(f"note: the passport says nothing of the {name}")
        else:
            problems.append(asked(name, check, consumer, behaviour[name]))
    for line in (behaviour["tokenizer"] or {}).get("transformers_differs", []) if consumer.has_files else []:
        say(f"note: {line}")
    problems.append(asked("config", config_difference, folder, passport))
    problems += files
    logits = asked("logits", logit_difference, consumer, behaviour["logits"], options.tolerance)
    if isinstance(logits, float):
        said.append(f"largest difference of a log-probability {logits:.2g}")
    else:
        problems.append(logits)
    problem, words = signature_difference(folder, options.signers)
    problems.append(problem)
    said.append(words)
    return [line for line in problems if line], "; ".join(word for word in said if word)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent,
                        help="where passport.json is; by default beside this script")
    parser.add_argument("--with", dest="consumer", default="transformers", metavar="WHAT",
                        help="transformers, llama-cpp, or the address of a server")
    parser.add_argument("--model", help="the file in GGUF, or the server's name of the model")
    parser.add_argument("--tolerance", type=float, default=1e-3,
                        help="of a log-probability, in nats; what computes in bf16 needs about 0.1")
    parser.add_argument("--signers", help="a file of allowed signers, as ssh-keygen reads it")
    options = parser.parse_args()
    passport = json.loads((options.folder / "passport.json").read_text())
    if passport.get("passport") != 1:
        sys.exit(f"{options.folder / 'passport.json'} is no passport of version 1")
    kinds = {"transformers": Transformers, "llama-cpp": LlamaCpp}
    kind = Server if "://" in options.consumer else kinds.get(options.consumer)
    if kind is None:
        parser.error(f"--with {options.consumer}: it is transformers, llama-cpp or an address")
    problems, said = compare(options.folder, passport, kind, options)
    for line in problems or [f"{options.folder} is what its passport says: {said}"]:
        say(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
