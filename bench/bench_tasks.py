"""Multiple choice beside lm-eval's own `hf` model on one machine, in turn; prints Markdown for docs/benchmarks.md.

    .venv/bin/python3 bench/bench_tasks.py build/bin/longhaul --lm-eval PYTHON [--rounds 3] [--questions 20]

PYTHON is that of an environment with lm-eval 0.4.13 and torch. The model is the Llama of bench_train.py with 125M
parameters in fp32; batches are of 8 requests. words: four choices of some words. tokens: four choices of one token
behind one context, which both compute once. lm-eval's seconds are those of its requests alone; those of
`eval --tasks` are the whole process's. Every figure is the median over the rounds. Exit 1 when a target is missed, or when
two log-likelihoods differ by more than 1e-2."""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import torch
import transformers
from bench_train import HERE, LARGE, LLAMA, MALLOC, machine
from bench_tuning import compare, ratios, spread

sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
import small_model  # noqa: E402

BATCH, TARGET = 8, 2.0
WORDS = sorted({word for text in small_model.documents() for word in text.split()})


def questions(path, kind, count, single):
    draw = random.Random(kind)
    lines = []
    for number in range(count):
        context = " ".join(draw.choices(WORDS, k=draw.randint(10, 30)))
        choices = [" " + word for word in single[:4]] if kind == "tokens" else [
            " " + " ".join(draw.choices(WORDS, k=draw.randint(2, 6))) for _ in range(4)]
        asked = {f"gen_args_{i}": {"arg_0": context, "arg_1": choice} for i, choice in enumerate(choices)}
        lines.append(json.dumps({
            "doc_id": number, "doc": {"choices": [choice[1:] for choice in choices]}, "target": "0",
            "arguments": asked, "resps": [[["0", "False"]]] * 4, "filtered_resps": [["0", "False"]] * 4,
            "filter": "none", "metrics": ["acc"], "acc": 1.0}))
    path.write_text("\n".join(lines) + "\n")
    return path


def peer(python, samples, model, *words):
    command = [python, HERE / "peer_tasks.py", samples, model, "--batch", BATCH, *words]
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **MALLOC, "HF_HUB_OFFLINE": "1"})
    return json.loads(done.stdout.splitlines()[-1])


def eval_tasks(binary, samples, model):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "answers.jsonl"
        begin = time.perf_counter()
        subprocess.run([binary, "eval", model, "--tasks", samples, "--seq-len", "511", "--dtype", "fp32",
                        "--out", out, "--json"], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        answers = [json.loads(line) for line in out.read_text().splitlines()]
    return {"seconds": seconds, "sums": [value for answer in answers for value in answer["log_probs"]]}


def served(python, binary, samples, model):
    server = subprocess.Popen([binary, "serve", model, "--port", "0", "--dtype", "fp32", "--max-length", "512"],
                              stdout=subprocess.PIPE, text=True)
    try:
        url = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
        return peer(python, samples, model, "--server", url + "/v1/completions")
    finally:
        server.terminate()
        server.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--lm-eval", dest="python", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--questions", type=int, default=20)
    options = parser.parse_args()
    print(f"{machine()}; {options.rounds} rounds in turn\n", flush=True)
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model"
        torch.manual_seed(1)
        config = {**LLAMA, **LARGE, "bos_token_id": 0, "eos_token_id": 1}
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).save_pretrained(model)
        small_model.make_tokenizer(model, small_model.documents())
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        single = [word for word in WORDS if len(tokenizer.encode(" " + word, add_special_tokens=False)) == 1]
        print("| choices | who | seconds | lm-eval's hf / its own |\n|---|---|---|---|")
        for kind in ("words", "tokens"):
            samples = questions(pathlib.Path(folder) / f"samples_{kind}.jsonl", kind, options.questions, single)
            found = compare({
                "lm-eval, hf": lambda: peer(options.python, samples, model),
                "longhaul eval --tasks": lambda: eval_tasks(options.binary, samples, model),
                "lm-eval, longhaul serve": lambda: served(options.python, options.binary, samples, model),
            }, options.rounds)
            for name, results in found.items():
                seconds = [result["seconds"] for result in results]
                ratio = ratios(found, "lm-eval, hf", name, lambda result: result["seconds"])
                worst = max(abs(a - b) for a, b in zip(results[0]["sums"], found["lm-eval, hf"][0]["sums"]))
                missed |= worst > 1e-2 or (name != "lm-eval, hf" and sorted(ratio)[len(ratio) // 2] < TARGET)
                print(f"| {kind} | {name} | {spread(seconds, 1)} | {spread(ratio, 2)} |", flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
