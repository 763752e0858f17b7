"""What a run's ranks hold at once, and what is counted of it before the run.

    .venv/bin/python tests/dist/planned_memory.py [PART OF A NAME]

prints a table of LAYOUTS on the software accelerator, whose allocator counts what tensors ask for.
"""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from layouts import parallel, train  # noqa: E402
from programs import BIN, run_program  # noqa: E402

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8192, "hidden_size": 512,
    "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "initializer_range": 0.02, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}
# Each token goes to every expert, so that loads are even, as they are counted. Those of first weights are not.
MIXTRAL = {**LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
           "num_experts_per_tok": 4, "intermediate_size": 384, "sliding_window": None}
QWEN3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64}
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 8192, "n_embd": 512,
        "num_hidden_layers": 6, "n_head": 8, "n_positions": 512, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attn_pdrop": 0.0}
SELECTIVE, FULL = ['memory.recompute="selective"'], ['memory.recompute="full"']


def of(model, layout, *more):
    ranks, sets = layout
    return model, ranks, [*sets, *more]


# What makes these models tiny, and leaves their layers.
TINY = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "head_dim": 8, "n_embd": 64}


# name: (model, ranks, settings)
LAYOUTS = {
    "one rank": of(LLAMA, parallel(1)),
    "fp32": of(LLAMA, parallel(1), 'precision.compute="fp32"'),
    "selective": of(LLAMA, parallel(1), *SELECTIVE),
    "dp 2, zero 0": of(GPT2, parallel(2, zero=0)),
    "dp 2, zero 1, full": of(LLAMA, parallel(2, zero=1), *FULL),
    "dp 2, zero 2": of(QWEN3, parallel(2, zero=2)),
    "dp 2, zero 3": of(LLAMA, parallel(2, zero=3)),
    "dp 4, shard group 2": of(LLAMA, parallel(4, zero=3, shard_group=2)),
    "tp 2, whole tokens": of(LLAMA, parallel(2, tp=2, sequence=False)),
    "tp 2": of(QWEN3, parallel(2, tp=2)),
    "tp 4, selective": of(LLAMA, parallel(4, tp=4), *SELECTIVE),
    "cp 2, ring": of(LLAMA, parallel(2, cp=2, context="ring")),
    "cp 2, gather": of(LLAMA, parallel(2, cp=2, context="gather")),
    "pp 2, zb-h1": of(LLAMA, parallel(2, pp=2, pipeline="zb-h1")),
    "tp 2, pp 2, dp 2, interleaved": of(
        {**LLAMA, "num_hidden_layers": 12}, parallel(8, tp=2, pp=2, pipeline="interleaved", virtual_stages=3)),
    "ep 2": of(MIXTRAL, parallel(2, ep=2)),
    "ep 4, selective": of(MIXTRAL, parallel(4, ep=4), *SELECTIVE),
    "ep 2, dp 4, zero 3": of(MIXTRAL, parallel(4, ep=2, zero=3)),
    "ep 2, tp 2, dp 2, full": of(MIXTRAL, parallel(4, ep=2, tp=2), *FULL),
    "ep 2, pp 2, dp 2": of(MIXTRAL, parallel(4, ep=2, pp=2)),
}

RUN = """[run]
dir = "run"
steps = {steps}
threads = 1
[model]
config = "config.json"
[data]
seq_len = 512
train = [{{ synthetic = 1000 }}]
[batch]
global_size = {sequences}
[optimizer]
lr = 1e-4
[checkpoint]
every = 0
[resilience]
checksum_every = 0
"""
MACHINE = """[machine]
device = "{device}"
[peak]
bf16 = 1e12
fp32 = 1e12
memory = 1e11
[efficiency]
products = 0.5
attention = 0.5
memory = 0.5
[inside]
bytes_per_s = 1e9
[node]
ranks = {ranks}
device_bytes = 16e9
host_bytes = 64e9
"""
# The profile has the device's peak, without which a run measures products that may be larger than its steps.
DEVICE = ['run.device="plugin"', f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"',
          'run.hardware="machine.toml"']


def write(place, name, device, model=None):
    of_layout, ranks, sets = LAYOUTS[name]
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps({**of_layout, **(model or {})}))
    (place / "run.toml").write_text(RUN.format(steps=1, sequences=8))
    (place / "machine.toml").write_text(MACHINE.format(ranks=ranks, device=device))
    return ranks, sets


def words(sets):
    return [word for one in sets for word in ("--set", one)]


def planned(run, place, ranks, sets):
    """What `plan` says of a run's layout and memory."""
    said = run("longhaul", "plan", "run.toml", "--ranks", ranks, "--hardware", "machine.toml", "--price", 0, "--json",
               *words(sets), cwd=place)
    return json.loads(said.stdout)


def by_rank(found, ranks):
    """The bytes that `plan` counts of each rank, the most first."""
    stages = [one["all_bytes"] for one in found["memory"]["ranks"]]
    return sorted((each for each in stages for _ in range(ranks // len(stages))), reverse=True)


def measured(run, place, ranks, sets):
    """The most bytes that each rank's tensors asked a device for at once, the most first."""
    counters = place / "counters"
    run("longhaul", "train", "run.toml", *words(sets), ranks=ranks, cwd=place,
        env={"OMP_NUM_THREADS": "1", "SOFTDEV_REPORT": str(counters)})
    return sorted((json.loads(line)["peak_asked_bytes"] for line in counters.open()), reverse=True)


def compare(run, place, name, model=None, more=()):
    """Pairs of what is counted and measured of each rank on the software accelerator."""
    ranks, sets = write(place, name, "softdev:0", model)
    sets = [*sets, *DEVICE, *more]
    return list(zip(by_rank(planned(run, place, ranks, sets), ranks), measured(run, place, ranks, sets), strict=True))


def resident(run, place, name):
    """What is counted on a CPU of the rank that holds most, and the resident set of the largest rank, each less that of
    a tiny model in the same layout."""
    found = []
    for size, model in ("whole", {}), ("tiny", TINY):
        ranks, sets = write(place / size, name, "cpu", model)
        sets = [*sets, 'run.device="cpu"']
        counted = by_rank(planned(run, place / size, ranks, sets), ranks)[0]
        run("longhaul", "train", "run.toml", *words(sets), ranks=ranks, cwd=place / size, env={"OMP_NUM_THREADS": "1"})
        *_, last = map(json.loads, (place / size / "run/metrics.jsonl").open())
        found.append((counted, last["memory_peak_bytes"]))
    return [whole - tiny for whole, tiny in zip(*found)]


def main():
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    print("| layout | device: MB counted | peak / counted | CPU: MB counted | resident / counted |\n" + "|---" * 5 + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name in LAYOUTS:
            if part not in name:
                continue
            pairs = compare(run_program, pathlib.Path(folder) / "device" / name, name)
            ratios = sorted({f"{asked / counted:.4f}" for counted, asked in pairs})
            counted, held = resident(run_program, pathlib.Path(folder) / "cpu" / name, name)
            print(f"| {name} | {pairs[0][0] / 1e6:.1f} | {', '.join(ratios)} | {counted / 1e6:.1f} "
                  f"| {held / counted:.3f} |", flush=True)


if __name__ == "__main__":
    main()
