"""Compares what training holds in memory with the formulas of docs/layouts.md and prints a
Markdown table.

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
from bench_train import machine, model_config  # noqa: E402

MODEL = dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=8,
             num_attention_heads=12, num_key_value_heads=4, vocab_size=40000)
TINY = dict(MODEL, hidden_size=64, intermediate_size=64, vocab_size=64)
SEQ, MICRO, MICRO_BATCHES = 512, 2, 2
ALIGN = 1024  # every tensor starts at a multiple; tensor/flat_buffers.h
CHUNK = 1 << 24  # elements of the logits that exist at once; ops/loss_head.cpp

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
        self.shards = dp if zero else 1

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


def up(value, to):
    return -(-value // to) * to


class Formulas:
    """docs/layouts.md, for the rank at place `stage` of the pipeline."""

    def __init__(self, layout, stage):
        self.layout, self.stage = layout, stage
        m, tp = MODEL, layout.tp
        self.H = m["hidden_size"]
        self.A = m["num_attention_heads"] * 64 // tp
        self.K = m["num_key_value_heads"] * 64 // tp
        self.I = m["intermediate_size"] // tp
        self.V = m["vocab_size"] // tp
        self.heads = m["num_attention_heads"] // tp
        self.layers = m["num_hidden_layers"] // layout.pp
        self.c = 2 if layout.compute == "bf16" else 4
        self.tokens = SEQ * MICRO
        self.first, self.last = stage == 0, stage == layout.pp - 1

    # State ------------------------------------------------------------------------------

    def bucket(self, sizes):
        return up(sum(up(s, ALIGN) for s in sizes), ALIGN * self.layout.dp)

    def units(self):
        """Elements of the units in forward order: matrices only."""
        block = [self.A * self.H] * 2 + [self.K * self.H] * 2 + [self.I * self.H] * 3
        table = [self.bucket([self.V * self.H])]
        return (table * self.first + [self.bucket(block)] * self.layers + table * self.last)

    def transient(self):
        """Elements of whole units that are here for a moment: one table, two blocks; with
        a pipeline all of them."""
        units = self.units()
        if self.layout.pp > 1:
            return sum(units)
        return max(units) + 2 * min(units)

    def state(self):
        """Weights and gradients; optimizer."""
        zero, n = self.layout.zero, self.layout.shards
        vectors = self.bucket([self.H] * (2 * self.layers + self.last))
        matrices = sum(self.units())
        weights, gradients = self.c * (vectors + matrices), 4 * (vectors + matrices)
        if zero >= 2:
            gradients = 4 * (vectors + matrices / n + self.transient())
        if zero >= 3:
            weights = self.c * (vectors + matrices / n + self.transient())
        master = 4 if self.c == 2 else 0
        return weights + gradients, (master + 8) * (vectors + matrices) / n

    # Activations, in bytes per token ----------------------------------------------------

    def outside(self):
        """Of what lies outside the regions, this rank's part."""
        return 1 / self.layout.tp if self.layout.sequence else 1

    def layer(self, recompute):
        """What one layer keeps until its backward."""
        s, c = self.outside(), self.c
        norms = 4 * self.H * c * s + 8 * s  # inputs and results of two norms; their rms
        core = (2 * self.A + 2 * self.K) * c + 4 * self.heads  # q, k, v, result; lse
        inner = 3 * self.I * c  # gate, up, their product
        if recompute == "full":
            return self.H * c * s
        if recompute == "selective":
            core -= self.A * c + 4 * self.heads
            inner -= self.I * c
        return norms + core + inner

    def block_work(self):
        """Beside what is kept, while the inner gradients of a block are formed."""
        s, c = self.outside(), self.c
        gathered = self.H if self.layout.sequence else 0  # gradient, let go of before the last I
        again = self.I if self.layout.recompute == "selective" else 0  # the product
        work = (self.H * s + max(2 * self.I + 2 * again, gathered + self.I + again)) * c
        if self.layout.recompute == "full":  # the block of this moment, and its result
            work += self.layer("none")
        return work

    def head_work(self):
        """The last block's result, the norm's, its gradient, and a chunk of logits."""
        s, c = self.outside(), self.c
        rows = min(self.tokens, max(CHUNK // self.V, 64))
        whole = 2 if self.layout.sequence else 1  # gathered hidden states and their gradient
        parts = 2 * s if self.layout.sequence else 2
        return (whole + parts) * self.H * c + 4 * s + rows * self.V * c / self.tokens

    def activations(self):
        in_flight = min(MICRO_BATCHES, self.layout.pp - self.stage)
        kept = in_flight * self.layers * self.layer(self.layout.recompute)
        work = max(self.block_work(), self.head_work() if self.last else 0)
        if self.layout.pp > 1:  # a message
            work += self.H * self.c * self.outside()
        return self.tokens * (kept + work)


def measure(program, layout, model):
    with tempfile.TemporaryDirectory() as folder:
        config = model_config(folder, **model)
        path = pathlib.Path(folder) / "run.toml"
        path.write_text(RUN.format(config=config, seq=SEQ, micro=MICRO,
                                   size=MICRO * MICRO_BATCHES * layout.dp))
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


def row_of(name, layout, ranks, fixed):
    """The rank with the largest total."""
    rows = []
    for rank in ranks:
        formulas = Formulas(layout, rank["rank"] * layout.pp // layout.ranks)
        resident = rank["resident"] - max(r["resident"] for r in fixed)
        rows.append((
            (*formulas.state(), formulas.activations()),
            (rank["weights_and_gradients"], rank["optimizer"], max(rank["activations"])),
            resident))
    formula, measured, resident = max(rows, key=lambda r: sum(r[1]))
    cells = [f"{f / 1e6:.1f} | {m / 1e6:.1f}" for f, m in zip(formula, measured)]
    return (f"| {name} | {' | '.join(cells)} | {sum(measured) / sum(formula):.3f} | "
            f"{resident / 1e6:.0f} | {resident / sum(formula):.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="bench_memory")
    parser.add_argument("--only", default="", help="layouts whose name contains this")
    options = parser.parse_args()
    program = pathlib.Path(options.program).resolve()
    print(f"Machine: {machine()}. {MODEL}, micro batches of {MICRO} x {SEQ}, "
          f"{MICRO_BATCHES} per step and rank. MB (10^6 bytes).\n")
    print("| layout | weights, gradients | measured | optimizer | measured | activations | "
          "measured | measured / formula | resident | resident / formula |\n|" + "---|" * 10,
          flush=True)
    for name, layout in LAYOUTS.items():
        if options.only in name:
            ranks, fixed = (measure(program, layout, model) for model in (MODEL, TINY))
            print(row_of(name, layout, ranks, fixed), flush=True)


if __name__ == "__main__":
    main()
