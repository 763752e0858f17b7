#!/usr/bin/env python3
"""What a store of objects costs: a build from it, training from a cold cache, a mirrored save.

    .venv/bin/python bench/bench_objects.py build/bin/longhaul WORK [--server rclone]
        [--rounds 5] [--parts build train save] [--apart]

The server runs on loopback, on the same cores, which a real one does not take: with --apart it
has the last core, and all else the others. Sides take turns. Prints Markdown:
build: JSON lines of 240 MB in 24 objects, against local files and against a plain reader of
the same objects, whose 16 threads read whole objects by boto3 and throw them away;
train: the demo's model for some steps, data at an address with an empty data.cache, against
the same store on the disk, seconds of the whole command;
save: how long training stands still at each save, and a step's seconds between saves, with
checkpoint.mirror and without: ten pairs of runs. Says how many steps the mirror skipped, since a
mirror that is behind works while the next step is saved.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "objects"))
from bench_peer_memory import MODEL  # noqa: E402
from servers import BUCKET, client_of, environment, forget_other_stores, serve  # noqa: E402

READERS = 16
OBJECTS = 24
BUILD_TARGET = 0.8
TRAIN_TARGET = 0.95
PIECE = 1 << 20
SAVES = """
[run]
dir = "{dir}"
steps = {steps}
device = "cpu"
[model]
config = "{model}"
[data]
seq_len = 128
train = [{{ synthetic = 2000 }}]
[batch]
global_size = 4
micro_size = 4
[optimizer]
lr = 1e-3
[checkpoint]
every = {every}
keep = 1
"""


def run(env, *command):
    """Seconds of a command that has to succeed, and what it said."""
    begin = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=3600,
                          env={**os.environ, **env}, cwd=ROOT)
    seconds = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return seconds, done.stdout


def sets(*words):
    return [word for one in words for word in ("--set", one)]


def write_corpus(folder, megabytes):
    """JSON lines of that size in so many files: Python's own sources, in other orders."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for file in sorted(pathlib.Path(os.__file__).parent.rglob("*.py")):
        try:
            lines.append(json.dumps({"text": file.read_text("utf-8")}).encode() + b"\n")
        except UnicodeDecodeError:
            continue
    chance = random.Random(5)
    for number in range(OBJECTS):
        left = megabytes * 1_000_000 // OBJECTS
        with (folder / f"part-{number:02}.jsonl").open("wb") as out:
            while left > 0:
                line = chance.choice(lines)
                left -= out.write(line)


def read_plainly(store):
    """Seconds in which a plain concurrent reader fetches all objects."""
    client, sizes = client_of(store.endpoint), store.sizes("corpus/")

    def fetch(key):
        body = client.get_object(Bucket=BUCKET, Key=key)["Body"]
        return sum(len(piece) for piece in iter(lambda: body.read(PIECE), b""))

    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        got = sum(pool.map(fetch, sizes))
    seconds = time.perf_counter() - begin
    assert got == sum(sizes.values())
    return seconds


def verdict(what, reached, target):
    missed = "" if reached >= target else "  **MISSED**"
    print(f"\n{what}: {reached:.3f}, target {target:g}{missed}")


def bench_build(options, store, env):
    corpus, tokenizer = options.work / "corpus", options.work / "tokenizer"
    if not corpus.exists():
        write_corpus(corpus, options.megabytes)
    if not tokenizer.exists():
        run(env, options.longhaul, "data", "train-tokenizer", corpus / "part-00.jsonl", "--out",
            tokenizer, "--vocab-size", options.vocab_size)
    store.put_folder("corpus", corpus)
    total = sum(path.stat().st_size for path in corpus.iterdir())
    sides = {"from the store": f"s3://{BUCKET}/corpus/*.jsonl",
             "from local files": corpus / "*.jsonl"}
    seconds = {name: [] for name in [*sides, "plain reader"]}
    for number in range(options.rounds):
        for name, inputs in sides.items():
            out = options.work / "store"
            shutil.rmtree(out, ignore_errors=True)
            seconds[name].append(run(env, options.longhaul, "data", "build", inputs, "--tokenizer",
                                     tokenizer, "--out", out)[0])
        seconds["plain reader"].append(read_plainly(store))
        print(f"round {number + 1}:", {k: round(v[-1], 2) for k, v in seconds.items()},
              file=sys.stderr)
    print(f"{total / 1e6:.0f} MB of JSON lines in {OBJECTS} objects on {store.name}; median of "
          f"{options.rounds} rounds\n\n| build | seconds | MB/s |\n|---|---|---|")
    rates = {name: total / 1e6 / statistics.median(found) for name, found in seconds.items()}
    for name, found in seconds.items():
        print(f"| {name} | {statistics.median(found):.2f} | {rates[name]:.0f} |")
    least = min(rates["from local files"], rates["plain reader"])
    verdict("build from the store against the slower of the two", rates["from the store"] / least,
            BUILD_TARGET)


def bench_train(options, store, env):
    here = options.work / "store"
    if not here.exists():
        sys.exit("train takes the store that build makes: add --parts build train")
    store.put_folder("store", here)
    cache = options.work / "cache"
    sides = {"from the disk": here, "from the store, cold": f"s3://{BUCKET}/store"}
    seconds = {name: [] for name in sides}
    for number in range(options.rounds):
        for name, place in sides.items():
            for old in (cache, options.work / "run"):
                shutil.rmtree(old, ignore_errors=True)
            seconds[name].append(run(
                env, options.longhaul, "train", "recipes/demo/pretrain.toml",
                *sets(f'run.dir="{options.work}/run"', f"run.steps={options.steps}",
                      f'data.train=[{{path="{place}"}}]', "data.validation=[]",
                      "validation.every=0", f'data.cache="{cache}"', "checkpoint.every=0"))[0])
        print(f"round {number + 1}:", {k: round(v[-1], 2) for k, v in seconds.items()},
              file=sys.stderr)
    print(f"\n| training, {options.steps} steps of the demo's model | seconds |\n|---|---|")
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    for name, found in middle.items():
        print(f"| {name} | {found:.2f} |")
    verdict("speed of training from a cold cache against that from the disk",
            middle["from the disk"] / middle["from the store, cold"], TRAIN_TARGET)


def save_once(options, env, mirror):
    """The stalls of a run's saves and its steps' seconds, without the first ones, and how many
    steps the mirror skipped."""
    out = options.work / "saves"
    shutil.rmtree(out, ignore_errors=True)
    (out / "model").mkdir(parents=True)
    (out / "model" / "config.json").write_text(json.dumps(MODEL))
    config = out / "run.toml"
    config.write_text(SAVES.format(dir=out / "run", steps=options.save_steps,
                                   every=options.save_every, model=out / "model"))
    words = sets(f'checkpoint.mirror="s3://{BUCKET}/saves"') if mirror else []
    run(env, options.longhaul, "train", config, *words)
    events = list(map(json.loads, (out / "run/events.jsonl").read_text().splitlines()))
    # The last save is one that the run waits for.
    stalls = [e["stall"] for e in events if e["event"] == "checkpoint" and "stall" in e
              and e["step"] < options.save_steps]
    records = map(json.loads, (out / "run/metrics.jsonl").read_text().splitlines())
    steps = [r["step_time_s"] for r in records if "grad_norm" in r and r["step"] > 2]
    return stalls[1:], steps, sum(e["event"] == "mirror_behind" for e in events)


def bench_save(options, store, env):
    stalls, steps = ({True: [], False: []} for _ in range(2))
    skipped = 0
    for number in range(options.pairs):
        for mirror in ((True, False), (False, True))[number % 2]:
            store.remove_all("saves/")
            found = save_once(options, env, mirror)
            stalls[mirror].append(statistics.median(found[0]))
            steps[mirror].append(statistics.median(found[1]))
            skipped += found[2]
        print(f"pair {number + 1}: stalls {stalls[True][-1]:.4f} and {stalls[False][-1]:.4f} s",
              file=sys.stderr)
    print(f"\n| {options.pairs} pairs of runs | stall of a save, s | seconds of a step |")
    print("|---|---|---|")
    for mirror, name in ((True, "with a mirror"), (False, "without")):
        print(f"| {name} | {statistics.median(stalls[mirror]):.4f} | "
              f"{statistics.median(steps[mirror]):.4f} |")
    print(f"\nsteps that the mirror skipped: {skipped}")
    for what, found in (("stall", stalls), ("step", steps)):
        ratios = sorted(a / b for a, b in zip(found[True], found[False]))
        wins = sum(ratio > 1 for ratio in ratios)
        print(f"\n{what} with a mirror against without: median {statistics.median(ratios):.3f}, "
              f"from {ratios[0]:.3f} to {ratios[-1]:.3f}; longer in {wins} of {len(ratios)} pairs")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("longhaul", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("work", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--server", choices=["rclone", "moto"], default="rclone")
    parser.add_argument("--parts", nargs="+", choices=["build", "train", "save"],
                        default=["build", "train", "save"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=240)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-steps", type=int, default=144)
    parser.add_argument("--save-every", type=int, default=36)
    parser.add_argument("--apart", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    forget_other_stores()
    benches = {"build": bench_build, "train": bench_train, "save": bench_save}
    cores = sorted(os.sched_getaffinity(0))
    if options.apart and len(cores) == 1:
        sys.exit("--apart needs a second core")
    for part in options.parts:
        shutil.rmtree(options.work / "server", ignore_errors=True)
        os.sched_setaffinity(0, cores[-1:] if options.apart else cores)
        with serve(options.server, options.work / "server") as store:
            os.sched_setaffinity(0, cores[:-1] if options.apart else cores)
            benches[part](options, store, environment(options.work / "home", store.endpoint))


if __name__ == "__main__":
    main()
