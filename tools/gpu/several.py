"""What several ranks with a device each do: the steps of 6_several.sh. Prints "result: ..."."""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from families import FAMILIES
from train import command_of, curve

LAYOUTS = {"tp2": ["parallel.tp=2"], "pp2": ["parallel.pp=2"], "zero3": ["parallel.zero=3"],
           "cp2": ["parallel.cp=2"], "ep2": ["parallel.ep=2"]}
PLAIN = ['precision.compute="fp32"', "batch.micro_size=1"]
STOPPED_S = 20  # after which a rank that does not answer is given up
SAVES_MIB = 300  # half of what a CUDA context takes
LONG = "run.steps=100000"


def model_of(name):
    return FAMILIES["mixtral" if name == "ep2" else "llama"]


def devices(options):
    sets = []
    if options.plugin:
        sets.append(f'run.device_plugin="{options.plugin}"')
    return sets


def on_ranks(options, command):
    """The command on all ranks, and its environment."""
    words = [*options.mpirun.split(), "-n", str(options.ranks), *map(str, command)]
    print(*words, flush=True)
    return words, {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def call(options, command, **more):
    words, environment = on_ranks(options, command)
    return subprocess.run(words, env=environment, check=True, text=True, **more)


def trained(options, name, sets):
    command = command_of(options, name, options.device, [*PLAIN, *devices(options), *sets], model_of(name))
    call(options, command)
    return curve(options.runs / name)


def off(found, wanted, tolerance):
    worst = max(abs(a - b) / b for a, b in zip(found, wanted, strict=True))
    print(f"result: loss {found[0]:.4f} to {found[-1]:.4f}, off by {worst:.1e} at most")
    if worst > tolerance:
        sys.exit(f"the curves differ by {worst:.3e}, more than {tolerance:.1e}")


def layout(options):
    """A layout on devices against one rank on the CPU, in fp32."""
    name = options.step
    carried = pathlib.Path(__file__).parent / "curves" / f"{name}.json"
    if carried.exists():
        wanted = json.loads(carried.read_text())
    else:
        command = command_of(options, f"{name}-cpu", "cpu", PLAIN, model_of(name))
        subprocess.run(command, check=True)
        wanted = curve(options.runs / f"{name}-cpu")
    off(trained(options, name, LAYOUTS[name]), wanted, 1e-4)


def twice(options):
    """Two deterministic runs have the same losses."""
    sets = ["run.deterministic=true", "parallel.zero=3", 'precision.compute="bf16"']
    off(*(trained(options, name, sets) for name in ("twice", "twice-again")), 0.0)


def links(options):
    """The doctor over the devices: how fast, by which ways, and what the host takes."""
    command = command_of(options, "links", options.device,
                         [*devices(options), "parallel.ep=2", "batch.micro_size=1"], model_of("ep2"))
    command[1] = "doctor"
    said = call(options, [*command, "--quick", "--json"], stdout=subprocess.PIPE).stdout
    print(said)
    told = []
    for check in json.loads(said)["together"]:
        name, values = check["name"], check["values"]
        if name == "ways":
            told.append(f"{check['result']}: {', '.join(values['ways'])}")
        if name == "host time":
            told.append(f"host {1e6 * values['seconds']:.1f} us a collective")
        if "bytes_per_second" in values:
            told.append(f"{name.removeprefix('device ')} {1e-9 * values['bytes_per_second']:.2f} GB/s")
    print("result:", "; ".join(told))


def started(options, name, sets):
    """A run in the middle of its steps."""
    words, environment = on_ranks(options, command_of(
        options, name, options.device, [*PLAIN, *devices(options), LONG, *sets], model_of(name)))
    run = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 100
    metrics = options.runs / name / "metrics.jsonl"
    while not (metrics.exists() and len(curve(metrics.parent)) >= 3):
        if run.poll() is not None or time.monotonic() > limit:
            run.kill()
            sys.exit(f"no steps: {run.communicate()[1]}")
        time.sleep(0.1)
    return run


def rank_pids(parent):
    """rank -> process id, of mpirun's children."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", (path / "environ").read_bytes())
        except OSError:
            continue  # it ended meanwhile
        if rank:
            found[int(rank[1])] = int(path.name)
    return found


def stopped(options):
    """A rank that is stopped is waited for until the deadline, by name."""
    run = started(options, "stopped", [f"resilience.comm_timeout_s={STOPPED_S}"])
    os.kill(rank_pids(run.pid)[options.ranks - 1], signal.SIGSTOP)
    since = time.monotonic()
    try:
        said = run.communicate(timeout=4 * STOPPED_S)[1]
    except subprocess.TimeoutExpired:
        run.kill()
        sys.exit(f"still there {4 * STOPPED_S} s after a rank was stopped")
    print(said)
    named = re.search(r"\w+ number \d+ \(\d+ bytes\) on '\w+'", said)
    if not named or run.returncode == 0:
        sys.exit("no operation was named")
    print(f"result: named after {time.monotonic() - since:.0f} s: {named[0]}")


def used_mib():
    said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          check=True, capture_output=True, text=True).stdout
    return [int(line) for line in said.split()]


def save(options):
    """Saves take no memory of GPU 0 for the ranks of the others."""
    run = started(options, "save", ["checkpoint.every=5", "checkpoint.keep=1"])
    most, seen = 0, 0
    try:
        limit = time.monotonic() + 20
        while time.monotonic() < limit and run.poll() is None:
            if options.device == "cuda":
                first, *others = used_mib()[:options.ranks]
                most = max(most, first - min(others))
            seen = max([seen, *(int(path.name[5:]) for path in (options.runs / "save/checkpoints").glob("step_*"))])
            time.sleep(0.2)
        if run.poll() is not None:
            sys.exit(f"the run ended: {run.communicate()[1]}")
    finally:
        run.terminate()
        run.communicate()
    print(f"result: saved up to step {seen}; GPU 0 has {most} MiB more than another at most"
          if options.device == "cuda" else f"result: saved up to step {seen}")
    if seen == 0 or most > SAVES_MIB:
        sys.exit(f"no save, or more than {SAVES_MIB} MiB")


def exposed(options):
    """A step with tp beside what `plan` reckons from rates of the same minute."""
    sets = ["parallel.tp=2", "batch.micro_size=1", *devices(options)]
    command = command_of(options, "exposed", options.device, sets, model_of("exposed"))
    profile = options.runs / "machine.toml"
    command[1] = "bench"
    said = call(options, [*command, "--steps", "9", "--out", profile, "--json"], stdout=subprocess.PIPE).stdout
    print(said)
    (measured,) = [json.loads(line) for line in said.splitlines() if line.startswith('{"')]
    profile.write_text(profile.read_text() + f"\n[inside]\nbytes_per_s = 1e11\n[node]\nranks = {options.ranks}\n"
                                             "host_bytes = 1e12\n")
    command[1] = "plan"
    said = subprocess.run([*command, "--ranks", str(options.ranks), "--hardware", profile, "--json"], check=True,
                          capture_output=True, text=True).stdout
    step = json.loads(said)["step"]
    print(json.dumps(step))
    waits = sum(cause["seconds"] for cause in measured["causes"] if cause["cause"] == "waiting for other ranks")
    reckoned = sum(part["exposed_s"] for part in step["parts"]
                   if part["cause"].startswith(("exchanges over", "gradients of", "weights gathered")))
    print(f"result: a step {1e3 * measured['step_seconds']:.2f} ms, {1e3 * waits:.2f} waiting for others; "
          f"reckoned {1e3 * step['seconds']:.2f} and {1e3 * reckoned:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--runs", type=pathlib.Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--plugin", default="")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("step", choices=["links", *LAYOUTS, "twice", "stopped", "save", "exposed"])
    options = parser.parse_args()
    layout(options) if options.step in LAYOUTS else globals()[options.step](options)


if __name__ == "__main__":
    main()
