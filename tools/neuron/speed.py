"""Measures a step of one shape with tp on cores of a Trainium, beside what `plan` reckons of it."""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/gpu"))

from train import MODEL, command_of  # noqa: E402

# Llama 3 8B with 2 of its 32 layers
SHAPES = {"8b": {**MODEL, "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
                 "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
                 "rope_theta": 500000.0, "initializer_range": 0.02},
          "tiny": MODEL}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--runs", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    options = parser.parse_args()
    options.steps = 100
    sets = [f"parallel.tp={options.ranks}", f"data.seq_len={options.seq_len}", "batch.micro_size=1",
            "batch.global_size=4"]
    command = command_of(options, options.shape, "neuron", sets, SHAPES[options.shape])
    hardware = ["--hardware", ROOT / "hardware/trn2.48xlarge.toml"]
    command[1] = "bench"
    measure = [*options.mpirun.split(), "-n", str(options.ranks), *command, "--steps", "9", *hardware,
               "--out", options.runs / "measured.toml", "--json"]
    print(*measure, flush=True)
    said = subprocess.run(measure, check=True, stdout=subprocess.PIPE, text=True, env={
        **os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}).stdout
    print(said)
    (measured,) = [json.loads(line) for line in said.splitlines() if line.startswith('{"')]
    command[1] = "plan"
    planned = subprocess.run([*command, "--ranks", str(options.ranks), "--price", "0", *hardware, "--json"],
                             check=True, stdout=subprocess.PIPE, text=True).stdout
    step = json.loads(planned)["step"]
    seconds = measured["step_seconds"]
    print(f"result: a step {seconds:.3f} s, {step['tokens'] / seconds:.0f} tokens/s; "
          f"reckoned {step['seconds']:.3f} s")


if __name__ == "__main__":
    main()
