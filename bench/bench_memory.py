"""Compares what training holds in memory with what `longhaul config --ranks` counts and
prints a Markdown table.

    .venv/bin/python bench/bench_memory.py build/bench/bench_memory [--only zero]

Every row is one run of two steps, of its rank with the largest total. Buffers and live tensors
are counted to the byte; the resident set, less that of a run of a tiny model in the same
layout, has everything else in it too (messages, scratch of libraries, unused heap).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench_train import LLAMA, machine, model_config  # noqa: E402

MODEL = dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=8,
             num_attention_heads=12, num_key_value_heads=4, vocab_size=40000)
TINY = dict(MODEL, hidden_size=64, intermediate_size=64, vocab_size=64)
SEQ, MICRO, MICRO_BATCHES = 512, 2, 2

RUN = """
[run]
dir = "unused"
steps = 2
device = "cpu"
threads = 1
[model]
config = "{config}"
[data]
seq_len = {seq}
train = [{{ synthetic = 1000 }}]
[batch]
global_size = {size}
micro_size = {micro}
[optimizer]
lr = 1e-4
[schedule]
kind = "constant"
warmup_steps = 0
"""


class Layout:
    """A number of ranks and what is set; one kind of layout at a time."""

    def __init__(self, dp=1, tp=1, pp=1, zero=1, sequence=True, recompute="none",
                 compute="bf16"):
        self.dp, self.tp, self.pp, self.zero = dp, tp, pp, zero
        self.sequence = sequence and tp > 1
        self.recompute, self.compute = recompute, compute
        self.ranks = dp * tp * pp

    def sets(self):
        layers = MODEL["num_hidden_layers"]
        even = [f"parallel.partition={[layers // self.pp] * self.pp}"] if self.pp > 1 else []
        return even + [f"parallel.tp={self.tp}", f"parallel.pp={self.pp}", f"parallel.zero={self.zero}",
                f"parallel.sequence={str(self.sequence or self.tp == 1).lower()}",
                f'memory.recompute="{self.recompute}"', f'precision.compute="{self.compute}"']


LAYOUTS = {
    "zero 0, dp 2": Layout(dp=2, zero=0),
    "zero 1, dp 2": Layout(dp=2, zero=1),
    "zero 2, dp 2": Layout(dp=2, zero=2),
    "zero 3, dp 2": Layout(dp=2, zero=3),
    "zero 2, dp 2, pp 2": Layout(dp=2, zero=2, pp=2),
    "zero 3, dp 2, pp 2": Layout(dp=2, zero=3, pp=2),
    "tp 2": Layout(tp=2, sequence=False),
    "tp 2, sequence": Layout(tp=2),
    "pp 2": Layout(pp=2),
    "one rank": Layout(),
    "one rank, fp32": Layout(compute="fp32"),
    "selective": Layout(recompute="selective"),
    "full": Layout(recompute="full"),
    "tp 2, sequence, selective": Layout(tp=2, recompute="selective"),
    "tp 2, sequence, full": Layout(tp=2, recompute="full"),
}


def expected(longhaul, layout):
    """Of each stage, what `longhaul config` counts: weights and gradients, optimizer,
    activations."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(folder, layout, MODEL)
        words = [w for s in layout.sets() for w in ("--set", s)]
        said = subprocess.run([longhaul, "config", path, "--ranks", str(layout.ranks), "--json",
                               *words], capture_output=True, text=True, timeout=60, check=True)
    return [(r["weight_bytes"] + r["gradient_bytes"] + r["whole_weight_bytes"]
             + r["whole_gradient_bytes"], r["master_bytes"] + r["moment_bytes"],
             r["activation_bytes"]["total"] + r["work_bytes"])
            for r in json.loads(said.stdout)["layout"]["ranks"]]


def write_run(folder, layout, model):
    config = model_config(folder, **{**LLAMA, **model})
    path = pathlib.Path(folder) / "run.toml"
    path.write_text(RUN.format(config=config, seq=SEQ, micro=MICRO,
                               size=MICRO * MICRO_BATCHES * layout.dp))
    return path


def measure(program, layout, model):
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(folder, layout, model)
        command = [program, path, *[w for s in layout.sets() for w in ("--set", s)]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if layout.ranks > 1:
            command = ["mpirun", "-n", str(layout.ranks), "--oversubscribe", "--bind-to", "none",
                       *command]
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True,
                              text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def row_of(name, layout, stages, ranks, fixed):
    """The rank with the largest total."""
    rows = []
    for rank in ranks:
        resident = rank["resident"] - max(r["resident"] for r in fixed)
        rows.append((
            stages[rank["rank"] * layout.pp // layout.ranks],
            (rank["weights_and_gradients"], rank["optimizer"], max(rank["activations"])),
            resident))
    counted, measured, resident = max(rows, key=lambda r: sum(r[1]))
    cells = [f"{c / 1e6:.1f} | {m / 1e6:.1f}" for c, m in zip(counted, measured)]
    return (f"| {name} | {' | '.join(cells)} | {sum(measured) / sum(counted):.3f} | "
            f"{resident / 1e6:.0f} | {resident / sum(counted):.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="bench_memory")
    parser.add_argument("--only", default="", help="layouts whose name contains this")
    options = parser.parse_args()
    program = pathlib.Path(options.program).resolve()
    print(f"Machine: {machine()}. {MODEL}, micro batches of {MICRO} x {SEQ}, "
          f"{MICRO_BATCHES} per step and rank. MB (10^6 bytes).\n")
    print("| layout | weights, gradients | measured | optimizer | measured | activations | "
          "measured | measured / counted | resident | resident / counted |\n|" + "---|" * 10,
          flush=True)
    for name, layout in LAYOUTS.items():
        if options.only in name:
            ranks, fixed = (measure(program, layout, model) for model in (MODEL, TINY))
            stages = expected(program.parent.parent / "bin/longhaul", layout)
            print(row_of(name, layout, stages, ranks, fixed), flush=True)


if __name__ == "__main__":
    main()
