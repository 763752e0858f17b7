"""Compares `longhaul train` with transformers on one machine, interleaved, and prints
Markdown tables for docs/benchmarks.md.

    .venv/bin/python bench/bench_train.py build/bin/longhaul [--rounds 5] [--quick]
    .venv/bin/python bench/bench_train.py build/bin/longhaul --model bert --speed-only

A round runs every variant once, each in a process of its own; a variant's speed is the
median over its rounds of the median step, first step excluded. Peak memory is the largest
resident set of the process. AdamW, clip 1.0; variants hold master weights, moments and
gradients in fp32 and compute matrix products in bf16 unless they say otherwise (where a
processor has no fast products in bf16, the peers' best is fp32). The Llama has 12 layers,
hidden 768, feed forward 2048, 12 query and 4 key heads; the others are the published models of
that size, of the 1B one 4 of its 16 layers.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BATCH, LENGTH = 2, 1024
LLAMA = dict(architectures=["LlamaForCausalLM"], model_type="llama", head_dim=64,
             hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0,
             max_position_embeddings=2048, initializer_range=0.02,
             tie_word_embeddings=False, attention_bias=False, mlp_bias=False,
             bos_token_id=1, eos_token_id=2)
LARGE = dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
             num_attention_heads=12, num_key_value_heads=4, vocab_size=32000)
SMALL = dict(hidden_size=256, intermediate_size=688, num_hidden_layers=4,
             num_attention_heads=4, num_key_value_heads=2, vocab_size=16000)
# config.json, sequences of a batch, their length
MODELS = {
    "llama": ("Llama of 125M parameters, vocabulary 32000", {**LLAMA, **LARGE}, BATCH, LENGTH),
    "1b": ("4 layers of Llama 3.2 1B", {
        **LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "rope_theta": 500000.0, "tie_word_embeddings": True}, 1, LENGTH),
    "gpt2": ("GPT-2 124M", dict(
        architectures=["GPT2LMHeadModel"], model_type="gpt2", n_embd=768, n_layer=12, n_head=12,
        n_positions=1024, vocab_size=50257, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
        BATCH, LENGTH),
    "neox": ("Pythia 160M (GPT-NeoX)", dict(
        architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox", hidden_size=768,
        intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, vocab_size=50304,
        max_position_embeddings=2048, rotary_pct=0.25, rotary_emb_base=10000, hidden_act="gelu",
        layer_norm_eps=1e-5, use_parallel_residual=True, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=0),
        BATCH, LENGTH),
    "moe": ("Qwen3-MoE: 6 layers, hidden 768, 32 experts of 384, 4 for each token", dict(
        architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=768,
        intermediate_size=2048, moe_intermediate_size=384, num_experts=32, num_experts_per_tok=4,
        num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4, head_dim=64,
        vocab_size=32000, max_position_embeddings=2048, norm_topk_prob=True, decoder_sparse_step=1,
        mlp_only_layers=[], hidden_act="silu", rms_norm_eps=1e-6, rope_theta=10000.0,
        tie_word_embeddings=False, attention_bias=False, use_sliding_window=False),
        BATCH, LENGTH),
    "bert": ("BERT-base, both losses, dropout 0.1, 19 of 128 tokens masked", dict(
        architectures=["BertForPreTraining"], model_type="bert", hidden_size=768,
        intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, vocab_size=30522,
        max_position_embeddings=512, type_vocab_size=2, hidden_act="gelu", layer_norm_eps=1e-12,
        hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, pad_token_id=0), 16, 128),
}
# What longhaul sets for itself.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
          "MALLOC_TOP_PAD_": str(1 << 26), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def model_config(folder, **fields):
    path = pathlib.Path(folder) / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields))
    return path


def run_process(command, extra=None):
    """Standard output, peak resident bytes and the time at which the process started."""
    environment = {**os.environ, **(extra or {})}
    begin = time.time()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{out.read()}\n{err.read()}")
        return out.read(), usage.ru_maxrss * 1024, begin


def longhaul(binary, config, batch, length, steps, sets=()):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder)
        (run / "run.toml").write_text(f"""
[run]
dir = "{run}/out"
steps = {steps}
[model]
config = "{config}"
[data]
seq_len = {length}
train = [{{ synthetic = 100000 }}]
[batch]
global_size = {batch}
micro_size = {batch}
[precision]
compute = "bf16"
[optimizer]
kind = "adamw"
lr = 1e-4
[schedule]
kind = "constant"
warmup_steps = 0
[checkpoint]
every = 1000000
[log]
tensorboard = false
""")
        _, peak, begin = run_process([binary, "train", run / "run.toml",
                                      *(word for one in sets for word in ("--set", one))])
        lines = (run / "out/metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return dict(step_times=[r["step_time_s"] for r in records],
                    first_step_at=records[0]["time"], peak_bytes=peak, begin=begin)


def peer(_, config, batch, length, steps, arguments=(), malloc=False):
    command = [sys.executable, HERE / "peer_train.py", config, "--batch", str(batch),
               "--length", str(length), "--steps", str(steps), *arguments]
    out, peak, begin = run_process(command, MALLOC if malloc else None)
    return dict(json.loads(out.splitlines()[-1]), peak_bytes=peak, begin=begin)


VARIANTS = {
    "longhaul": (longhaul, {}, "bf16 weights; fp32 master, moments, gradients"),
    "longhaul, selective": (longhaul, dict(sets=['memory.recompute="selective"']),
                            "the same; attention and SwiGLU's product formed again"),
    "longhaul, bf16 states": (
        longhaul, dict(sets=['precision.master="bf16_sr"', 'precision.moments="bf16"',
                             'precision.gradients="bf16"', 'memory.recompute="selective"']),
        "all bf16, rounded at random; attention and SwiGLU's product formed again"),
    "longhaul, bf16 states, recomputed": (
        longhaul, dict(sets=['precision.master="bf16_sr"', 'precision.moments="bf16"',
                             'precision.gradients="bf16"', 'memory.recompute="full"']),
        "all bf16, rounded at random; every block run again"),
    "longhaul, fp32": (longhaul, dict(sets=['precision.compute="fp32"']), "fp32 weights, moments, gradients"),
    "transformers eager": (peer, {}, "fp32 weights, moments, gradients; bf16 autocast"),
    "transformers eager, tuned malloc": (peer, dict(malloc=True), "the same"),
    "transformers eager, bf16 weights": (
        peer, dict(arguments=["--precision", "master"]),
        "bf16 weights; fp32 master, moments; gradients bf16, then fp32"),
    "transformers eager, bf16 weights, tuned malloc": (
        peer, dict(arguments=["--precision", "master"], malloc=True), "the same"),
    "transformers eager, experts in a loop, tuned malloc": (
        peer, dict(arguments=["--experts", "eager"], malloc=True),
        "fp32 weights, moments, gradients; bf16 autocast"),
    "transformers eager, experts in a loop, bf16 weights, tuned malloc": (
        peer, dict(arguments=["--experts", "eager", "--precision", "master"], malloc=True),
        "bf16 weights; fp32 master, moments; gradients bf16, then fp32"),
    "torch.compile": (peer, dict(arguments=["--compile"]),
                      "fp32 weights, moments, gradients; bf16 autocast"),
    "torch.compile, tuned malloc": (peer, dict(arguments=["--compile"], malloc=True),
                                    "the same"),
    "torch.compile, bf16 weights, tuned malloc": (
        peer, dict(arguments=["--compile", "--precision", "master"], malloc=True),
        "bf16 weights; fp32 master, moments; gradients bf16, then fp32"),
    "transformers eager, fp32, tuned malloc": (
        peer, dict(arguments=["--precision", "fp32"], malloc=True),
        "fp32 weights, moments, gradients"),
    "torch.compile, fp32, tuned malloc": (
        peer, dict(arguments=["--compile", "--precision", "fp32"], malloc=True), "the same"),
}


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "")
    sets = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
            if f" {name}" in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {', '.join(sets)}, {memory:.0f} GiB"


def compare(names, binary, config, rounds, steps, batch, length=LENGTH):
    results = {name: [] for name in names}
    for index in range(rounds):
        for name in names:
            call, options, _ = VARIANTS[name]
            results[name].append(call(binary, config, batch, length, steps, **options))
            print(f"round {index + 1} {name}: steps "
                  f"{[round(t, 2) for t in results[name][-1]['step_times']]}",
                  file=sys.stderr, flush=True)
    return results


def table(results, tokens):
    """`tokens`: of a batch."""
    rows = ["| variant | states | s/step | tokens/s | peak GiB | longhaul is |",
            "|---|---|---|---|---|---|"]
    step = {name: statistics.median(statistics.median(r["step_times"][1:]) for r in runs)
            for name, runs in results.items()}
    for name, runs in results.items():
        peak = statistics.median(r["peak_bytes"] for r in runs) / 2**30
        ratio = f"{step[name] / step['longhaul']:.2f}x as fast" if "longhaul" in step else ""
        rows.append(f"| {name} | {VARIANTS[name][2]} | {step[name]:.3f} | "
                    f"{tokens / step[name]:.0f} | {peak:.2f} | {ratio} |")
    return "\n".join(rows)


def memory_table(results, batch):
    rows = [f"| batch {batch} x {LENGTH} | peak GiB | longhaul needs |", "|---|---|---|"]
    peak = {name: statistics.median(r["peak_bytes"] for r in runs)
            for name, runs in results.items()}
    for name, value in peak.items():
        ratio = f"{peak['longhaul'] / value:.2f}x" if "longhaul" in peak else ""
        rows.append(f"| {name} | {value / 2**30:.2f} | {ratio} |")
    return "\n".join(rows)


def start_table(results):
    rows = ["| variant | seconds to the end of step 1 |", "|---|---|"]
    for name, runs in results.items():
        seconds = statistics.median(r["first_step_at"] - r["begin"] for r in runs)
        rows.append(f"| {name} | {seconds:.2f} |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("longhaul", help="the longhaul program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="per process and round")
    parser.add_argument("--only", action="append", metavar="WORDS",
                        help="variants whose name contains this, and longhaul; again for more")
    parser.add_argument("--model", choices=MODELS, default="llama",
                        help="of another than llama the step alone is timed")
    parser.add_argument("--speed-only", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one round, no compile")
    options = parser.parse_args()
    names = [n for n in VARIANTS if "experts" not in n or options.model == "moe"]
    names = [n for n in names
             if not options.only or n == "longhaul" or any(words in n for words in options.only)]
    rounds = 1 if options.quick else options.rounds
    if options.quick:
        names = [n for n in names if "compile" not in n]
    binary = pathlib.Path(options.longhaul).resolve()
    with tempfile.TemporaryDirectory() as folder:
        title, fields, batch, length = MODELS[options.model]
        speed = compare(names, binary, model_config(f"{folder}/model", **fields), rounds,
                        options.steps, batch, length)
        title = f"{title}, batch {batch} x {length}, AdamW:\n"
        if options.speed_only or options.model != "llama":
            print(f"{title}\n{table(speed, batch * length)}")
            return
        wide = model_config(f"{folder}/wide", **{**LLAMA, **LARGE, "vocab_size": 128256})
        small = model_config(f"{folder}/small", **LLAMA, **SMALL)
        plain = [n for n in names if "malloc" not in n and "weights" not in n]
        memory = {batch: compare(plain, binary, wide, 1, 2, batch=batch)
                  for batch in (BATCH, 2 * BATCH)}
        start = compare([n for n in plain if "compile" not in n], binary, small, rounds, 1,
                        batch=1, length=256)
    versions = next((r["versions"] for runs in speed.values() for r in runs
                     if "versions" in r), "")
    print(f"Machine: {machine()}. Peers: {versions}. Median of {rounds} interleaved rounds, "
          f"{options.steps - 1} steps each after the first.\n")
    print(title)
    print(table(speed, batch * length))
    print("\nThe same model with a vocabulary of 128256:\n")
    print("\n\n".join(memory_table(r, batch) for batch, r in memory.items()))
    print("\nFrom process start to the end of the first optimizer step, 10M parameters, "
          "batch 1 x 256:\n")
    print(start_table(start))


if __name__ == "__main__":
    main()
