"""One short training on synthetic data on a device, held against the CPU's curve.

Prints "result: ..." with the largest relative difference of a step's loss; exits with 1 where
that is above --tolerance. --twice: two runs, whose curves must be the same. --resume: stopped
half-way and gone on with.
"""

import argparse
import json
import pathlib
import subprocess
import sys

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320,
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "initializer_range": 0.05, "tie_word_embeddings": False,
}
TEXT = """
[run]
dir = "{dir}"
steps = {steps}
[model]
config = "{model}"
[data]
seq_len = 64
train = [{{ synthetic = 400 }}]
[batch]
global_size = 8
micro_size = 4
[optimizer]
lr = 3e-3
[schedule]
kind = "constant"
[checkpoint]
every = 0
"""


def command_of(options, name, device, sets, model=MODEL):
    """The command of a run whose files are written."""
    folder = options.runs / f"{name}-model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model))
    path = options.runs / f"{name}.toml"
    path.write_text(TEXT.format(dir=options.runs / name, model=folder, steps=options.steps))
    command = [options.longhaul, "train", path]
    for pair in [f'run.device="{device}"', *sets]:
        command += ["--set", pair]
    return command


def train(options, name, device, sets):
    command = command_of(options, name, device, sets)
    print(*command, flush=True)
    subprocess.run(command, check=True)


def records(run):
    """Of each step the last."""
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "grad_norm" in record:
            found[record["step"]] = record
    return [record for _, record in sorted(found.items())]


def curve(run):
    return [record["loss"] for record in records(run)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--runs", type=pathlib.Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--tolerance", type=float, default=0.0)
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    name = options.name
    if options.resume:
        train(options, name, options.device, [*options.set, f"run.steps={options.steps // 2}"])
    train(options, name, options.device, options.set)
    other = f"{name}-again" if options.twice else f"{name}-cpu"
    carried = pathlib.Path(__file__).parent / "curves" / f"{name}.json"
    if not options.twice and carried.exists():
        wanted = json.loads(carried.read_text())
    else:
        train(options, other, options.device if options.twice else "cpu", options.set)
        wanted = curve(options.runs / other)
    found = curve(options.runs / name)
    if len(found) != options.steps or len(wanted) != options.steps:
        sys.exit(f"{len(found)} and {len(wanted)} steps, not {options.steps}")
    worst = max(abs(a - b) / b for a, b in zip(found, wanted))
    print(f"result: loss {found[0]:.4f} to {found[-1]:.4f}, off by {worst:.1e} at most")
    if worst > options.tolerance:
        sys.exit(f"the curves differ by {worst:.3e}, more than {options.tolerance:.1e}")


if __name__ == "__main__":
    main()
