"""How much communication of two data-parallel ranks is not hidden behind computation: the
step's time less that of one rank which does the same work without communication. Compares
`longhaul train` with torch (DDP, FSDP2 over gloo) and prints a Markdown table.

    .venv/bin/python bench/bench_overlap.py build/bin/longhaul [--rounds 5]

One thread a rank, fp32. Variants run one after the other in each round, each in processes of its
own; the one rank runs twice at the same time, so that both cores are as busy as with two
ranks (the last two steps are left out: the other one may have ended). Figures are the
median over the rounds of the median step, the first left out, and the shortest step of all,
which says more where other work disturbs the machine. Where
optimizer state is sharded (zero 1 and 3, FSDP2) a rank updates half of what the one rank
does, which counts in their favour on both sides.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from bench_train import LLAMA, machine, model_config  # noqa: E402

MODEL = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8,
             num_attention_heads=8, num_key_value_heads=4, vocab_size=16000)
MICRO, ACCUMULATION, LENGTH = 1, 2, 128
# Runs end with a checkpoint: in memory, so that no disk is busy while the next one runs.
FOLDER = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None

RUN = """
[run]
dir = "{dir}"
steps = {steps}
device = "cpu"
threads = 1
[model]
config = "{config}"
[data]
seq_len = {length}
train = [{{ synthetic = 100000 }}]
[batch]
global_size = {size}
micro_size = {micro}
[parallel]
zero = {zero}
[precision]
compute = "fp32"
[optimizer]
lr = 1e-4
[schedule]
kind = "constant"
warmup_steps = 0
[checkpoint]
every = 0
[log]
tensorboard = false
"""


def together(commands, environments):
    """Runs them at the same time; their outputs."""
    processes = [subprocess.Popen(list(map(str, c)), env={**os.environ, **e}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for c, e in zip(commands, environments)]
    try:
        outputs = [p.communicate(timeout=600) for p in processes]
    finally:
        for process in processes:
            process.kill()
    for process, command, (out, err) in zip(processes, commands, outputs):
        if process.returncode:
            sys.exit(f"{' '.join(map(str, command))}\n{out}\n{err}")
    return [out for out, _ in outputs]


def longhaul(options, config, zero):
    """Two ranks with that much of ZeRO; None: one rank, twice."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        commands = []
        for place in range(1 if zero is not None else 2):
            run = pathlib.Path(folder) / str(place)
            run.mkdir()
            ranks = 1 if zero is None else 2
            (run / "run.toml").write_text(RUN.format(
                dir=run / "out", steps=options.steps, config=config, length=LENGTH,
                size=MICRO * ACCUMULATION * ranks, micro=MICRO, zero=zero or 0))
            launch = ["mpirun", "-n", 2, "--bind-to", "none"] if ranks == 2 else []
            commands.append([*launch, options.longhaul, "train", run / "run.toml"])
        environment = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        together(commands, [environment] * len(commands))
        lines = (pathlib.Path(folder) / "0/out/metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["step_time_s"] for line in lines]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def peer(options, config, kind):
    port = str(free_port())
    command = [sys.executable, HERE / "peer_overlap.py", config, "--kind", kind, "--micro", MICRO,
               "--accumulation", ACCUMULATION, "--length", LENGTH, "--steps", options.steps]
    environments = [{"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": port, "OMP_NUM_THREADS": "1"} for rank in (0, 1)]
    out = together([command] * 2, environments)[0]
    return json.loads(out.splitlines()[-1])["step_times"]


VARIANTS = {
    "longhaul, one rank": (longhaul, None),
    "torch, one rank": (peer, "alone"),
    "longhaul zero 0": (longhaul, 0),
    "torch DDP": (peer, "ddp"),
    "longhaul zero 1": (longhaul, 1),
    "longhaul zero 3": (longhaul, 3),
    "torch FSDP2": (peer, "fsdp2"),
}
PEERS = {"longhaul zero 0": "torch DDP", "longhaul zero 1": "torch DDP",
         "longhaul zero 3": "torch FSDP2"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("longhaul", type=pathlib.Path, help="the longhaul program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=9,
                        help="per process; the first and the last two do not count")
    options = parser.parse_args()
    options.longhaul = options.longhaul.resolve()
    medians = {name: [] for name in VARIANTS}
    shortest = {name: float("inf") for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        config = model_config(folder, **LLAMA, **MODEL)
        for index in range(options.rounds):
            for name, (call, argument) in VARIANTS.items():
                times = call(options, config, argument)[1:-2]
                medians[name].append(statistics.median(times))
                shortest[name] = min(shortest[name], *times)
                print(f"round {index + 1} {name}: {[round(t, 3) for t in times]}",
                      file=sys.stderr, flush=True)
    print(f"Machine: {machine()}. {MODEL}, fp32, {ACCUMULATION} micro batches of {MICRO} x "
          f"{LENGTH} a rank, {options.rounds} rounds of {options.steps - 3} steps.\n")
    print("| variant | median s/step | rounds | exposed, s | of the peer's | shortest s/step | "
          "exposed, s | of the peer's |\n|" + "---|" * 8)
    step = {name: statistics.median(values) for name, values in medians.items()}
    for name in VARIANTS:
        rounds = f"{min(medians[name]):.3f} to {max(medians[name]):.3f}"
        print(f"| {name} | {step[name]:.3f} | {rounds} | {exposed(step, name)} | "
              f"{shortest[name]:.3f} | {exposed(shortest, name)} |")


def exposed(step, name):
    """Two cells: seconds beyond one rank's, and their share of the peer's."""
    def beyond(variant):
        return step[variant] - step[f"{variant.split()[0].rstrip(',')}, one rank"]

    if "one rank" in name:
        return " | "
    share = f"{beyond(name) / beyond(PEERS[name]):.2f}x" if name in PEERS else ""
    return f"{beyond(name):.3f} | {share}"


if __name__ == "__main__":
    main()
