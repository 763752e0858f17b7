"""Random runs that are interrupted at random moments, also during a save, and go on. In the same
layout they are bitwise the undisturbed run, in another layout within a tolerance."""

import os
import pathlib
import random
import re
import signal
import subprocess
import time

from layouts import parallel, relative, step_dir, train, write_run
from programs import command_of
from random_layouts import (common_sets, draw_layout, draw_lengths, draw_memory, draw_model,
                            draw_numerics, ranks_and_keys, store_for)
from runs import curve, state, tensors
from test_failures import rank_pids

STOPPED, WRONG_SETTING = 75, 78
LIMIT = 90
SIGNALS = {"SIGKILL": (signal.SIGKILL,), "SIGTERM": (signal.SIGTERM,),
           "SIGUSR1": (signal.SIGUSR1,), "SIGSTOP": (signal.SIGSTOP, signal.SIGKILL)}


def draw_interruption(rng):
    return {"signal": rng.choice(list(SIGNALS)), "when": rng.choice(["moment", "step", "step", "saving"]),
            "share": rng.random(), "everyone": rng.random() < 0.4, "rank": rng.randrange(8)}


def draw_run(rng):
    layout = draw_layout(rng, ranks=4)
    if rng.random() < 0.3:
        layout = {"axes": {"dp": 1}, "keys": {"zero": 1}, "accumulation": rng.randint(1, 4)}
        layout["axes"].update(tp=1, pp=1, cp=1)
        layout["keys"].update(tp=1, pp=1, cp=1)
    return {"layout": layout, "model": draw_model(rng, layout), **draw_lengths(rng, layout)}


def draw(rng):
    steps = rng.randint(20, 60)
    return {**draw_run(rng), "numerics": draw_numerics(rng), "memory": draw_memory(rng),
            "steps": steps, "every": rng.randint(2, 10),
            "states": rng.choice([[], [], ['precision.moments="bf16"']]),
            "interruptions": [draw_interruption(rng) for _ in range(rng.randint(1, 4))]}


def sets_of(case):
    ranks, keys = ranks_and_keys(case)
    return ranks, [*keys, *case["memory"], *case["states"], *common_sets(case),
                   f"run.steps={case['steps']}", f"checkpoint.every={case['every']}"]


def saving(run_dir):
    """Whether a checkpoint is being saved that has no manifest yet."""
    return any(not (path / "manifest.json").exists()
               for path in (run_dir / "checkpoints").glob("step_*"))


def catches(pid, number):
    """Whether the process handles the signal by now. Before that, the signal would simply kill
    it."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (number - 1) & 1


def lines(run_dir):
    """The number of lines of the run's metrics: about one for each step, also of earlier starts."""
    try:
        return (run_dir / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def send(process, ranks, interruption):
    """Sends the interruption. Returns whether the run has to save and end in order."""
    pids = rank_pids(process.pid) if ranks > 1 else {0: process.pid}
    chosen = [pid for rank, pid in pids.items()
              if interruption["everyone"] or rank == interruption["rank"] % ranks]
    numbers = SIGNALS[interruption["signal"]]
    orderly = bool(chosen) and all(catches(pid, numbers[0]) for pid in pids.values())
    for number in numbers:
        for pid in chosen:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # it was through
        if number == signal.SIGSTOP:
            time.sleep(interruption["share"])
    return orderly and numbers[-1] != signal.SIGKILL


def interrupt(path, config, ranks, sets, interruption, seconds, steps):
    """Starts a run, interrupts it at its moment, and waits for its end. A refusal counts as a
    failure."""
    before = lines(path / "run")
    words = ["train", config, *[w for s in sets for w in ("--set", s)]]
    command, environment = command_of("longhaul", words, ranks)
    with open(path / "interrupted.txt", "a") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    moment = time.monotonic() + interruption["share"] * seconds
    while process.poll() is None:
        if interruption["when"] == "moment" and time.monotonic() >= moment:
            break
        if (interruption["when"] == "step"
                and lines(path / "run") - before > interruption["share"] * steps / 2):
            break
        if interruption["when"] == "saving" and saving(path / "run"):
            break
        time.sleep(0.001)
    orderly = send(process, ranks, interruption)
    code = process.wait(timeout=LIMIT)
    assert code in (0, STOPPED) or not orderly, (code, interruption)
    assert code != WRONG_SETTING, interruption


def final(path, case):
    return step_dir(path / "run", case["steps"])


def check_other_layout(case, path, run, store, whole):
    """Goes on from a checkpoint of the interrupted run in another layout, and compares."""
    rng = random.Random(str(case))
    saved = sorted(p.parent for p in (path / "parts/run/checkpoints").glob("*/manifest.json"))
    source = rng.choice(saved[:-1] or saved)
    begin = int(source.name[5:])
    micro = rng.choice([n for n in range(1, 5) if case["global"] % n == 0])
    dp = rng.choice([n for n in (1, 2, 3) if case["global"] // micro % n == 0])
    ranks, keys = parallel(dp, micro, zero=rng.randint(0, 3))
    (path / "other").mkdir()
    config = write_run(path / "other", store, **case["model"])
    train(run, config, *keys, *case["states"], *common_sets(case), f"run.steps={case['steps']}",
          f'checkpoint.resume="{source}"', ranks=ranks)
    ours = curve(path / "other/run")
    assert len(ours) == case["steps"] - begin
    for part in range(2):
        assert relative([p[part] for p in ours],
                        [p[part] for p in whole[begin:]]) <= 1e-5, (source, ranks, keys)


def check(case, path, run):
    store = store_for(path, run)
    ranks, sets = sets_of(case)
    configs = {}
    for name in ("whole", "parts"):
        (path / name).mkdir()
        configs[name] = write_run(path / name, store, **case["model"])
    begin = time.monotonic()
    train(run, configs["whole"], *sets, ranks=ranks)
    seconds = time.monotonic() - begin
    for interruption in case["interruptions"]:
        interrupt(path / "parts", configs["parts"], ranks, sets, interruption, seconds,
                  case["steps"])
    train(run, configs["parts"], *sets, ranks=ranks)
    whole, parts = curve(path / "whole/run"), curve(path / "parts/run")
    assert len(whole) == case["steps"] and parts == whole
    assert tensors(final(path / "parts", case)) == tensors(final(path / "whole", case))
    assert state(final(path / "parts", case)) == state(final(path / "whole", case))
    if 'precision.compute="fp32"' in case["numerics"] and not case["states"]:
        check_other_layout(case, path, run, store, whole)
