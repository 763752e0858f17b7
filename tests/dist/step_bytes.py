"""What a step launches and moves on an accelerator, against what fused operations need.

    .venv/bin/python tests/dist/step_bytes.py

trains a Llama in bf16 on the software accelerator, with 2 and 4 layers and 1 and 2 micro batches,
and takes differences: the cost of a layer in a micro batch, of embedding and head in a micro
batch, and of the update. Counted are elements that operations read and write, each once, in one
step. Then the same of a layer for one of two ranks, in LAYOUTS.
"""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from layouts import build_store, train, write_run  # noqa: E402
from programs import BIN, run_program  # noqa: E402

DEVICE = ['run.device="plugin"',
          f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"']
ROWS, SEQ = 4, 128
SIZES = {"hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 8, "head_dim": 16,
         "num_key_value_heads": 2, "vocab_size": 301, "max_position_embeddings": SEQ,
         "initializer_range": 0.02}
LAYERS, MICRO_BATCHES = (2, 4), (1, 2)
BF16, FP32 = 2, 4

# T tokens of a micro batch, H hidden size, Q and K features of all heads of queries and of keys,
# F inner size, V vocabulary. Weights and activations are bf16, gradients of weights and the states
# of the optimizer fp32.
T, H, F, V = ROWS * SEQ, SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["vocab_size"]
Q = SIZES["num_attention_heads"] * SIZES["head_dim"]
K = SIZES["num_key_value_heads"] * SIZES["head_dim"]
LSE = FP32 * T * SIZES["num_attention_heads"]


def product(tokens, inputs, outputs):
    """Bytes of y = x W' and of dx = dy W."""
    return 2 * BF16 * (tokens * inputs + inputs * outputs + tokens * outputs)


def weight_gradient(tokens, inputs, outputs):
    """Bytes of dW += dy' x, whose sum is read and written."""
    return BF16 * tokens * (inputs + outputs) + 2 * FP32 * inputs * outputs


def norms(forward, tokens=T, residual=0):
    """Bytes of the norms: x, the weight, the result and the inverse of each row; in the backward
    also dy and the sum for the weight's gradient. `residual` is how many more tensors are moved:
    what is added to x and the sum of both, or the gradient of what goes on beside the norm."""
    rows, weight = FP32 * tokens, BF16 * H
    if forward:
        return BF16 * (2 + residual) * tokens * H + weight + rows
    return BF16 * (3 + residual) * tokens * H + weight + rows + FP32 * H


def layer(tp=1, sequence=False, cp=1):
    """The bytes that a rank's share of a layer needs. The rank has 1 / cp of the tokens and 1 / tp
    of the features; between the products it has all features or, with sequence parallelism, 1 / tp
    of the tokens. Attention is one kernel over all keys, to which the ranks of cp send their
    keys."""
    mine = T // cp
    rows = mine // tp if sequence else mine
    # q, k and v are one product of one input, and so are gate and up.
    products = [(mine, H, (Q + 2 * K) // tp), (mine, Q // tp, H), (mine, H, 2 * F // tp),
                (mine, F // tp, H)]
    q, k, lse = mine * Q // tp, T * K // tp, LSE // cp // tp
    return {
        "aten::mm": sum(product(*p) for p in products),
        "aten::addmm": sum(weight_gradient(*p) for p in products),
        # This is the residual after the feed-forward layer. The norms add the other residual and
        # the gradients of both.
        "aten::add": BF16 * 3 * rows * H,
        "longhaul::rms_norm_forward": norms(True, rows) + norms(True, rows, residual=2),
        "longhaul::rms_norm_backward": 2 * norms(False, rows, residual=1),
        # A rotation also reads the cosines and sines of each position, and the positions.
        "longhaul::rope": 2 * (BF16 * 2 * mine * (Q + K) // tp
                               + FP32 * SEQ // cp * SIZES["head_dim"] + FP32 * mine),
        "longhaul::gated_product_forward": BF16 * 3 * mine * F // tp,
        "longhaul::gated_product_backward": BF16 * 5 * mine * F // tp,
        "aten::_flash_attention_forward": BF16 * 2 * (q + k) + lse,
        "aten::_flash_attention_backward": BF16 * 4 * (q + k) + lse,
    }


DESIGN = {
    "layer": layer(),
    "embedding and head": {
        "aten::mm": product(T, H, V),
        "aten::addmm": weight_gradient(T, H, V),
        "longhaul::rms_norm_forward": norms(True),
        "longhaul::rms_norm_backward": norms(False),
        # Logits are read and replaced by their gradient; targets are read; two numbers a row are
        # written.
        "longhaul::cross_entropy": BF16 * 2 * T * V + 8 * T + 2 * FP32 * T,
        "aten::index_select": BF16 * 2 * T * H + FP32 * T,
        "longhaul::embedding_gradient": (BF16 + 2 * FP32) * T * H + FP32 * T,
    },
    # The update of a parameter reads its gradient for the norm and for the update and sets it to
    # zero. Master and two moments are read and written, and the bf16 weight is written.
    "update": {
        "longhaul::add_squares": FP32,
        "longhaul::adamw": FP32 + 3 * 2 * FP32 + BF16,
        "aten::zero_": FP32,
    },
}
# For two ranks: the settings, and the bytes that a layer of theirs needs.
LAYOUTS = {
    "tp": (["parallel.tp=2", "parallel.sequence=false"], layer(tp=2)),
    "tp, sequence": (["parallel.tp=2"], layer(tp=2, sequence=True)),
    "cp, ring": (["parallel.cp=2", 'parallel.context="ring"'], layer(cp=2)),
    "cp, gather": (["parallel.cp=2", 'parallel.context="gather"'], layer(cp=2)),
}
# Operations that send or receive are listed by themselves.
EXCHANGES = ("all_gather", "all_reduce", "reduce_scatter", "receive", "send")
LAYER_PARAMETERS = H * (Q + 2 * K) + Q * H + 3 * H * F + 2 * H


def step_of(path):
    """The operations between the ends of two steps: the last two waits that read something, with no
    other wait in between, since a slow machine measures the device's rate once more."""
    waits = [json.loads(line) for line in path.open()]
    first_rank = min(w["pid"] for w in waits)
    waits = [w for w in waits if w["pid"] == first_rank]

    def copies(wait):
        return wait["operations"].get("copy to the host")

    before, after = [(first["operations"], second["operations"])
                     for first, second in zip(waits, waits[1:])
                     if first["at"] == second["at"] == "event query" and copies(first) != copies(second)][-1]
    return {name: [b - a for a, b in zip(before.get(name, (0, 0)), now)]
            for name, now in after.items()}


def measured(run, store, path, *settings, ranks=1):
    """For each (layers, micro batches), the operations of a step on the first rank."""
    steps = {}
    for layers in LAYERS:
        for count in MICRO_BATCHES:
            place = path / f"{layers}_{count}"
            place.mkdir(parents=True)

            def traced(*words, env, trace=place / "trace", **options):
                return run(*words, env={**env, "SOFTDEV_TRACE": str(trace)}, **options)

            train(traced, write_run(place, store, num_hidden_layers=layers, **SIZES), *DEVICE,
                  "run.steps=10", f"data.seq_len={SEQ}", f"batch.micro_size={ROWS}",
                  f"batch.global_size={ROWS * count}", "resilience.checksum_every=0", *settings,
                  ranks=ranks)
            steps[layers, count] = step_of(place / "trace")
    return steps


def parts(steps):
    """The cost of a layer in a micro batch, of embedding and head in a micro batch, and of the
    update of a layer."""
    (few, many), (one, two) = LAYERS, MICRO_BATCHES

    def part(of):
        found = {}
        for name in set().union(*steps.values()):
            found[name] = [of(lambda *key: steps[key].get(name, (0, 0))[i]) for i in (0, 1)]
        return {name: values for name, values in found.items() if any(values)}

    def layer(g):
        return ((g(many, two) - g(few, two)) - (g(many, one) - g(few, one))) / (many - few)

    return {
        "layer": part(layer),
        "embedding and head": part(lambda g: g(few, two) - g(few, one) - few * layer(g)),
        "update": part(lambda g: (g(many, one) - g(few, one)) / (many - few) - layer(g)),
    }


def total(operations):
    return sum(moved for _, moved in operations.values())


def exchanged(operations):
    """Bytes that are received, sent and summed over ranks."""
    return sum(moved for name, (_, moved) in operations.items() if name.startswith(EXCHANGES))


def own(operations):
    """Bytes that stay on the device."""
    return total(operations) - exchanged(operations)


def layout_row(name, operations):
    needed = sum(LAYOUTS[name][1].values())
    return (f"| {name} | {sum(n for n, _ in operations.values()):.0f} | {own(operations):,.0f} "
            f"| {needed:,.0f} | {own(operations) / needed:.2f} | {exchanged(operations):,.0f} |")


def of_layout(run, store, path, name):
    """The operations of a layer in one of LAYOUTS."""
    settings, _ = LAYOUTS[name]
    return parts(measured(run, store, path, *settings, ranks=2))["layer"]


def design_of(part):
    return sum(DESIGN[part].values()) * (LAYER_PARAMETERS if part == "update" else 1)


def table(found):
    """A table in Markdown with a line for each operation, the one that moves most bytes first."""
    lines = []
    for part, operations in found.items():
        by = LAYER_PARAMETERS if part == "update" else 1
        lines += ["", f"| {part} | launches | {'bytes a parameter' if by > 1 else 'bytes'} "
                  "| fused design |", "|---|---:|---:|---:|"]
        needed = {name: (0, 0) for name in DESIGN[part]}
        rows = {**needed, **operations}
        for name in sorted(rows, key=lambda n: -rows[n][1]):
            launches, moved = rows[name]
            wanted = DESIGN[part].get(name, 0)
            if round(moved / by, 1) or wanted:
                lines.append(f"| {name} | {launches:.0f} | {moved / by:,.0f} | {wanted:,.0f} |")
        lines.append(f"| all | {sum(n for n, _ in operations.values()):.0f} "
                     f"| {total(operations) / by:,.0f} | {design_of(part) / by:,.0f}: "
                     f"{total(operations) / design_of(part):.2f}x |")
    return "\n".join(lines)


def main():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        store = build_store(run_program, root)
        print(table(parts(measured(run_program, store, root))))
        print("\n| a layer of two ranks | launches | bytes | fused design | ratio | exchanged |\n"
              "|---|---:|---:|---:|---:|---:|")
        for name in LAYOUTS:
            print(layout_row(name, of_layout(run_program, store, root / name, name)))


if __name__ == "__main__":
    main()
