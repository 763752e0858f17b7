#!/usr/bin/env python3
"""Trains five small models on 8 ranks of this machine, each in the layout of parallel.auto and in ten
layouts that a person would write, and tells how much longer a step takes than in the best of the ten.

  tools/auto_against_hand.py [DIRECTORY]     most of an hour on a machine that does nothing else

The machine's profile is measured first, with the exchanges of three of the layouts. Each layout is trained once, then auto
and the fastest three of the ten twice more in turn; the median of the three runs counts. Exits with 1
unless auto is within 5 % of the best in four of the five cases. The programs are those in build/bin,
or in $LONGHAUL_BIN_DIR.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", ROOT / "build/bin")) / "longhaul"
RANKS, STEPS = 8, 6
FIRST = 3  # the first step that counts
AGAIN = 3  # of the ten, so many of the fastest are run twice more
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 4096, "hidden_size": 256,
         "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
         "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "initializer_range": 0.02, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
MIXTRAL = {**LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 8,
           "num_experts_per_tok": 2, "intermediate_size": 256, "sliding_window": None}
# name: (model, positions, sequences of a step)
CASES = {
    "many short sequences": (LLAMA, 128, 64),
    "few long sequences": (LLAMA, 1024, 8),
    "deep": ({**LLAMA, "num_hidden_layers": 16, "hidden_size": 128, "intermediate_size": 384}, 512, 16),
    "large vocabulary": ({**LLAMA, "vocab_size": 32000}, 512, 16),
    "experts": (MIXTRAL, 512, 16),
}
HAND = [
    {}, {"zero": 0}, {"zero": 3}, {"tp": 2}, {"tp": 4}, {"tp": 2, "pp": 2}, {"pp": 2}, {"pp": 4, "pipeline": "zb-h1"},
    {"pp": 2, "pipeline": "interleaved", "virtual_stages": 2}, {"cp": 2},
]
MEASURED = [HAND[0], HAND[4], HAND[5]]
RUN = """[run]
dir = "run"
steps = {steps}
device = "cpu"
threads = 1
[model]
config = "model"
[data]
seq_len = {seq_len}
train = [{{ synthetic = 10000 }}]
[batch]
global_size = {sequences}
[optimizer]
lr = 1e-4
[precision]
compute = "fp32"
[checkpoint]
every = 0
[resilience]
checksum_every = 0
"""


def call(place, *words, ranks=1):
    start = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run([*start, PROGRAM, *map(str, words)], cwd=place, env=environment, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"{place}: {words}\n{done.stdout}{done.stderr}")
    return done.stdout


def sets_of(settings):
    return [word for key, value in settings.items() for word in ("--set", f"parallel.{key}={value}")]


def measure_machine(place):
    """Writes machine.toml: what bench measures, exchanges of several layouts, and the node."""
    exchanges, text = [], ""
    for settings in MEASURED:
        again = ["--hardware", "bench.toml"] if text else []
        call(place, "bench", "run.toml", *sets_of(settings), *again, "--out", "next.toml", ranks=RANKS)
        (place / "next.toml").replace(place / "bench.toml")
        text, *more = (place / "bench.toml").read_text().split("\n[[exchange]]\n")
        exchanges += [one for one in more if one not in exchanges]
    write_machine(place / "machine.toml", text, exchanges, RANKS)


def write_machine(path, text, exchanges, ranks):
    """Writes a profile with what bench has measured, the node, and a link like those of the exchanges."""
    rates = [float(found) for found in re.findall(r"^bytes_per_s = (\S+)", "\n".join(exchanges), re.M)]
    waits = [float(found) for found in re.findall(r"^latency_s = (\S+)", "\n".join(exchanges), re.M)]
    memory = int(re.search(r"MemTotal: +(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1)) * 1024
    text += f"\n[node]\nranks = {ranks}\nhost_bytes = {memory}\n"
    if exchanges:
        text += f"\n[inside]\nbytes_per_s = {statistics.median(rates)}\nlatency_s = {min(waits)}\n"
    path.write_text("\n[[exchange]]\n".join([text, *exchanges]))


def step_seconds(place, sets, name, ranks=RANKS):
    call(place, "train", "run.toml", "--set", f"run.dir={name}", *sets, ranks=ranks)
    records = [json.loads(line) for line in (place / name / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(one["step_time_s"] for one in records if one.get("step", 0) >= FIRST)


def compare(place, name):
    """Prints the line of one case, and returns whether auto is near the best."""
    model, seq_len, sequences = CASES[name]
    (place / "model").mkdir(parents=True)
    (place / "model/config.json").write_text(json.dumps(model))
    (place / "run.toml").write_text(RUN.format(steps=STEPS, seq_len=seq_len, sequences=sequences))
    measure_machine(place)
    told = json.loads(call(place, "config", "run.toml", "--ranks", RANKS, "--hardware", "machine.toml", "--json",
                           "--set", "parallel.auto=true"))["config"]
    chosen = [word for key in told["parallel"]["chosen"]["settings"] for section, one in [key.split(".")]
              for word in ("--set", f"{key}={told[section][one]}")]
    layouts = [chosen, *map(sets_of, HAND)]
    runs = [[step_seconds(place, sets, f"run-{number}")] for number, sets in enumerate(layouts)]
    for turn in range(2):
        for number in [0, *sorted(range(1, len(runs)), key=lambda one: runs[one][0])[:AGAIN]]:
            runs[number].append(step_seconds(place, layouts[number], f"run-{number}-{turn}"))
    seconds = [statistics.median(took) for took in runs]
    best = min(one for one, took in zip(seconds[1:], runs[1:]) if len(took) > 1)
    print(f"{name}: auto {seconds[0]:.4f} s a step (predicted {told['parallel']['chosen']['step_s']:.4f}), best of "
          f"{len(HAND)} {best:.4f} s ({HAND[seconds[1:].index(best)]}), ratio {seconds[0] / best:.3f}\n"
          f"  {' '.join(chosen[1::2])}", flush=True)
    return seconds[0] <= 1.05 * best


def main():
    place = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    near = sum(compare(place / name.replace(" ", "-"), name) for name in CASES)
    print(f"{near} of {len(CASES)} within 5 %")
    sys.exit(near < 4)


if __name__ == "__main__":
    main()
