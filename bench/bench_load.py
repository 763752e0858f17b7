"""What it takes to load a checkpoint into another layout: our ranks, which read together,
against torch.distributed.checkpoint over gloo with as many processes.

    .venv/bin/python bench/bench_load.py build/bench/bench_load [--dir DIR] [--rounds 5]

Both sides save the same made-up state (fp32 weights and two moments) in the first layout of
a case and load it in the second; values are checked. In each round the sides take turns,
with the files in the page cache ("warm") and dropped from it ("cold"). Seconds are from a
barrier, when all memory is there, to the end on the slowest rank; a figure is the median
over the rounds. Bytes read are what the processes read through system calls (rchar),
relative to the size of the state. Prints a Markdown table, and JSON with --json.
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
LAYER_BYTES = 125_841_408  # 10.5 million parameters of 12 bytes
# Layout and ranks that save, layout and ranks that load.
CASES = [("zero", 4, "zero", 1), ("zero", 4, "zero", 2), ("zero", 2, "zero", 3),
         ("tp", 4, "tp", 2), ("tp", 2, "tp", 4), ("pp", 4, "pp", 2), ("zero", 4, "tp", 2)]


def ours(binary, verb, where, layout, ranks, layers):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [binary, verb, where, layout, layers]
    if ranks > 1:
        command = ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", *command]
    return last_line([start(command, environment)])


def theirs(_, verb, where, layout, ranks, layers):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    processes = []
    for rank in range(ranks):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        processes.append(start([sys.executable, HERE / "peer_load.py", verb, where, layout, layers],
                               environment))
    return last_line(processes)


SIDES = {"longhaul": ours, "torch DCP": theirs}


def start(command, environment):
    return subprocess.Popen(list(map(str, command)), env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def last_line(processes):
    """What the first of them prints last, as JSON, when all have ended."""
    outputs = [p.communicate(timeout=600) for p in processes]
    for process, (out, err) in zip(processes, outputs):
        if process.returncode:
            sys.exit(f"{process.args}\n{out}\n{err[-3000:]}")
    return json.loads(outputs[0][0].strip().splitlines()[-1])


def set_cache(where, warm):
    """Reads the files into the page cache, or drops them from it."""
    os.sync()
    for path in pathlib.Path(where).rglob("*"):
        if not path.is_file():
            continue
        with path.open("rb") as file:
            if warm:
                while file.read(1 << 24):
                    pass
            else:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(binary, folder, case, layers, rounds):
    """{(side, cache): [results]}."""
    layout, writers, new_layout, readers = case
    found = {(side, cache): [] for side in SIDES for cache in ("warm", "cold")}
    with tempfile.TemporaryDirectory(dir=folder) as where:
        for side, call in SIDES.items():
            call(binary, "save", pathlib.Path(where) / side, layout, writers, layers)
        for number in range(rounds):
            for cache in ("warm", "cold"):
                for side, call in SIDES.items():
                    path = pathlib.Path(where) / side
                    set_cache(path, cache == "warm")
                    found[side, cache].append(
                        call(binary, "load", path, new_layout, readers, layers))
            print(f"{case} {layers} layers, round {number + 1}:",
                  {" ".join(k): round(v[-1]["seconds"], 3) for k, v in found.items()},
                  file=sys.stderr, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path, help="the program bench_load")
    parser.add_argument("--dir", help="a directory on the disk to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 12],
                        help="states of that many layers of 126 MB")
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)))
    parser.add_argument("--json", type=pathlib.Path, help="every figure of every round")
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    print("| state | saved | loaded | cache | longhaul s | torch DCP s | faster by | "
          "longhaul reads | torch DCP reads |\n|" + "---|" * 9, flush=True)
    everything = []
    for layers in options.layers:
        for number in options.cases:
            case = CASES[number]
            found = measure(options.binary, options.dir, case, layers, options.rounds)
            for cache in ("warm", "cold"):
                print(row(case, layers, cache, found), flush=True)
            everything.append({"case": case, "layers": layers,
                               "results": {" ".join(k): v for k, v in found.items()}})
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


def row(case, layers, cache, found):
    state = layers * LAYER_BYTES
    seconds, reads = {}, {}
    for side in SIDES:
        seconds[side] = statistics.median(r["seconds"] for r in found[side, cache])
        reads[side] = statistics.median(r["rchar"] for r in found[side, cache]) / state
    layout, writers, new_layout, readers = case
    return (f"| {state / 1e9:.1f} GB | {layout} x {writers} | {new_layout} x {readers} | {cache} | "
            f"{seconds['longhaul']:.2f} | {seconds['torch DCP']:.2f} | "
            f"{seconds['torch DCP'] / seconds['longhaul']:.1f}x | "
            f"{reads['longhaul']:.2f}x | {reads['torch DCP']:.2f}x |")


if __name__ == "__main__":
    main()
