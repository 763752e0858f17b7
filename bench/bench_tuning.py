"""Fine-tuning beside TRL and peft on one machine, in turn; prints Markdown for docs/benchmarks.md.

    .venv/bin/python3 bench/bench_tuning.py build/bin/longhaul [--parts chats lora dpo] [--rounds 3]

chats: from JSON lines of conversations to packed rows. longhaul's seconds are those of two whole processes, one that
builds the store and one that plans its rows; the peer's are those of two processes of SFTTrainer, without Python's
start. lora, dpo: training steps of the Llama of bench_train.py with 125M parameters, 2048 tokens each, and peak memory
of the whole process; the pairs need no padding on either side. Peers that train have longhaul's malloc.

Every figure is the median over the rounds, with the least and the most; a ratio is the median of the ratios of single
rounds. Exit 1 when a target is missed.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile

import bench_data
from bench_train import BATCH, HERE, LARGE, LENGTH, LLAMA, MALLOC, longhaul, machine, model_config, peer, run_process

sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
sys.path.insert(0, str(HERE.parent / "tests" / "preference"))
import pairs  # noqa: E402
import small_model  # noqa: E402

RANK, SIDE = 16, 256
CONTROL = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]


def spread(values, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def compare(sides, rounds):
    """Calls each of `sides` once in every round; returns what they gave, by name."""
    found = {name: [] for name in sides}
    for number in range(rounds):
        for name, call in sides.items():
            found[name].append(call())
            shown = {key: value for key, value in found[name][-1].items() if key != "versions"}
            print(f"round {number + 1}, {name}: {shown}", file=sys.stderr, flush=True)
    return found


def ratios(found, name, other, figure):
    """The figure of `name` as a share of that of `other`, of each round."""
    return [figure(a) / figure(b) for a, b in zip(found[name], found[other])]


def seconds(result):
    """Of a step, without the first; or of what is no step."""
    return result["seconds"] if "seconds" in result else statistics.median(result["step_times"][1:])


def peak(result):
    return result["peak_bytes"] / 2**30


def show(title, found):
    print(f"\n{title}:\n\n| | seconds | peak GiB |\n|---|---|---|")
    for name, results in found.items():
        gib = spread([*map(peak, results)], 2) if "peak_bytes" in results[0] else ""
        print(f"| {name} | {spread([*map(seconds, results)], 3)} | {gib} |")


def write_chats(path, megabytes):
    """Conversations of two to eight messages, about 3.4 KB each, of sources and texts."""
    bench_data.write_corpus(path.with_suffix(".text"), megabytes)
    text = "".join(json.loads(line)["text"] for line in path.with_suffix(".text").open(encoding="utf-8"))
    draw, begin, count = random.Random(1), 0, 0
    with path.open("w", encoding="utf-8") as out:
        while begin < len(text):
            messages = []
            for role in ["user", "assistant"] * draw.randint(1, 4):
                size = draw.randint(100, 1260)
                messages.append({"role": role, "content": f"{count} {text[begin:begin + size]}"})
                begin += size
            out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
            count += 1
    return count


def chat_model(folder, chats):
    """A tokenizer of 32,000 ids, trained on the chats, with Llama 3's control tokens and its chat template."""
    import trl
    from transformers import AutoTokenizer

    texts = [message["content"] for line in chats.open(encoding="utf-8") for message in json.loads(line)["messages"]]
    small_model.make_tokenizer(folder, texts[:6000], 32000)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": CONTROL})
    tokenizer.save_pretrained(folder)
    template = pathlib.Path(trl.__file__).parent / "chat_templates/llama3.jinja"
    (folder / "chat_template.jinja").write_text(template.read_text(encoding="utf-8"), encoding="utf-8")


def chats(options, place):
    lines, model, length = place / "chats.jsonl", place / "model", 16384
    count = write_chats(lines, options.megabytes)
    model_config(model, **{**LLAMA, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
                           "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 32003})
    chat_model(model, lines)
    (place / "run.toml").write_text(f"""
[run]
dir = "{place}/run"
steps = 1
[model]
config = "{model}"
[data]
seq_len = {length}
pack = "whole"
train = [{{ path = "{place}/store" }}]
[batch]
global_size = 1
[optimizer]
lr = 1e-4
""")

    def ours():
        for name in ("store", "run"):
            bench_data.shutil.rmtree(place / name, ignore_errors=True)
        built, _ = bench_data.run(options.binary, "data", "build", lines, "--chat", "--tokenizer", model,
                                  "--out", place / "store")
        planned, said = bench_data.run(options.binary, "data", "inspect", place / "store", "--config",
                                       place / "run.toml", "--json")
        told = json.loads(said)
        return {"seconds": built + planned, "rows": told["epoch"]["sequences"], "tokens": told["tokens"],
                "targets": told["tokens"] - told["not_targets"]}

    def theirs():
        out, _, _ = run_process([sys.executable, HERE / "peer_trl.py", "chats", model, lines, "--length", str(length)])
        made = json.loads(out.splitlines()[-1])
        return {key: made[key] for key in ("seconds", "rows", "tokens", "targets")}

    found = compare({"longhaul": ours, "TRL, two processes": theirs}, options.rounds)
    for one, other in zip(*found.values()):
        assert all(one[what] == other[what] for what in ("tokens", "targets")), (one, other)
    show(f"{count} chats of {lines.stat().st_size / 1e6:.1f} MB, rows of {length} tokens", found)
    return [("chats to rows, times as fast as TRL", ratios(found, "TRL, two processes", "longhaul", seconds), 5)]


def large_model(place):
    """A random Llama in bf16, for those that need files."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = model_config(place, **LLAMA, **LARGE)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(place), dtype=torch.bfloat16).save_pretrained(place)
    return config


def lora(options, place):
    config = large_model(place / "model")
    adapter = [*options.sets, f'init.weights="{place}/model"', 'adapter.kind="lora"', f"adapter.rank={RANK}",
               f"adapter.alpha={2 * RANK}"]
    forms = {"peft, fp32 base, autocast": "autocast", "peft, bf16 base, fp32 adapters, autocast": "base",
             "peft, all in bf16, fp32 master": "master"}
    steps = options.steps

    def beside(precision):
        return peer(None, config, BATCH, LENGTH, steps, ["--lora", str(RANK), "--precision", precision], malloc=True)
    sides = {"longhaul, all weights": lambda: longhaul(options.binary, config, BATCH, LENGTH, steps, options.sets),
             "longhaul, LoRA": lambda: longhaul(options.binary, config, BATCH, LENGTH, steps, adapter),
             **{name: (lambda precision=precision: beside(precision)) for name, precision in forms.items()}}
    found = compare(sides, options.rounds)
    show(f"LoRA of rank {RANK} in all linear layers, batch {BATCH} x {LENGTH}", found)

    def least(figure):
        return min(forms, key=lambda name: statistics.median(map(figure, found[name])))
    fast, lean = least(seconds), least(peak)
    ours, whole = "longhaul, LoRA", "longhaul, all weights"
    return [("a LoRA step, share of our whole step", ratios(found, ours, whole, seconds), -0.75),
            (f"a LoRA step, times as fast as {fast}", ratios(found, fast, ours, seconds), 1.5),
            (f"peak memory, share of that of {lean}", ratios(found, ours, lean, peak), -0.7)]


def dpo(options, place):
    config = large_model(place / "model")
    draw = random.Random(2)

    def ids(count):
        return [draw.randrange(3, 300) for _ in range(count)]
    made = [(ids(SIDE // 2), ids(SIDE // 2), ids(SIDE // 2)) for _ in range(16)]
    (place / "pairs.json").write_text(json.dumps(made))
    store = pairs.make_store(lambda program, *words: bench_data.run(options.binary, *words), place, made)
    sets = [*options.sets, f'init.weights="{place}/model"', f'data.train=[{{ path = "{store}" }}]', 'data.pack="whole"',
            'preference.loss="sigmoid"', "optimizer.lr=1e-6"]
    batch = BATCH * LENGTH // (2 * SIDE)

    def beside(*more):
        command = [sys.executable, HERE / "peer_trl.py", "dpo", place / "model", place / "pairs.json"]
        out, memory, _ = run_process([*command, "--batch", str(batch), "--steps", str(options.steps), *more], MALLOC)
        return {**json.loads(out.splitlines()[-1]), "peak_bytes": memory}
    found = compare({"longhaul, DPO": lambda: longhaul(options.binary, config, BATCH, LENGTH, options.steps, sets),
                     "TRL, fp32 weights, autocast": beside,
                     "TRL, bf16 weights and states, autocast": lambda: beside("--bf16-weights")}, options.rounds)
    show(f"DPO, {batch} pairs of {2 * SIDE} tokens, the reference's sums stored", found)
    return [(f"a DPO step, times as fast as {name}", ratios(found, name, "longhaul, DPO", seconds), 1.5)
            for name in list(found)[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--parts", nargs="+", choices=["chats", "lora", "dpo"], default=["chats", "lora", "dpo"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="of each process")
    parser.add_argument("--threads", type=int, default=2, help="of a process that trains")
    parser.add_argument("--megabytes", type=float, default=20, help="of the text of the chats")
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    options.sets = [f"run.threads={options.threads}"]
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    print(f"{machine()}; steps on {options.threads} threads; {options.rounds} rounds in turn")
    targets = []
    for part in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            targets += {"chats": chats, "lora": lora, "dpo": dpo}[part](options, pathlib.Path(folder))
    print("\n| | here | target |\n|---|---|---|")
    met = []
    for name, values, bound in targets:  # a bound below 0 is one from above
        met.append(statistics.median(values) >= bound if bound > 0 else statistics.median(values) <= -bound)
        asked = f"at least {bound}" if bound > 0 else f"at most {-bound}"
        print(f"| {name} | {spread(values, 2)} | {asked}: {'met' if met[-1] else '**missed**'} |")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
