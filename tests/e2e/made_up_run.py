"""A run directory that is made up: what watch and report read, without training."""

import json
import math
import time


def write_run(directory, steps, start=None, status=None, config="", hostile="", experts=None):
    """Writes `steps` steps of half a second, with a restart after two thirds of them, which does a
    few steps again. `experts` is (layers, experts of a layer) for a model that has some."""
    directory.mkdir(parents=True, exist_ok=True)
    now = start or time.time() - 0.6 * steps - 60
    restart_at, back = steps * 2 // 3, max(1, steps // 50)
    metrics, events = [], []

    def event(name, **fields):
        events.append(json.dumps({"event": name, "time": now, **fields}))

    def run(first, last, attempt):
        nonlocal now
        now += 2.0
        event("start", attempt=attempt, step=first - 1, seconds=2.0, world=8, job="77",
              last_step=steps)
        for step in range(first, last + 1):
            now += 0.5
            record = step_record(step, attempt, now)
            if experts:
                record |= {"expert_use": 0.5, "expert_busiest": 2.0, "router_entropy": 1.5}
            metrics.append(json.dumps(record))
            if experts and (step == 1 or step % 10 == 0):
                event("expert_loads", step=step, layers=expert_loads(step, *experts))
            if step % max(1, steps // 10) == 0:
                now += 1.0
                metrics.append(json.dumps({
                    "step": step, "attempt": attempt, "validation": "wiki" + hostile,
                    "loss": loss_at(step) + 0.1, "perplexity": 9.0, "seconds": 1.0, "time": now}))
                now += 0.25
                event("checkpoint", step=step, attempt=attempt, bytes=10**9, seconds=0.25,
                      stall=0.25, waited=0.0)

    run(1, restart_at, 1)
    now += 5.0
    run(restart_at - back + 1, steps, 2)
    event("bad_step", step=steps // 2, kind="spike", loss=1e9, grad_norm=1e5, action="skip",
          note=hostile)
    event("end", step=steps, attempt=2, signal=0, seconds=1.0)
    (directory / "metrics.jsonl").write_text("\n".join(metrics) + "\n")
    (directory / "events.jsonl").write_text("\n".join(events) + "\n")
    (directory / "config.toml").write_text(config or f"[run]\nsteps = {steps}\n")
    if status is not None:
        (directory / "status.json").write_text(json.dumps(status))
    return directory


def loss_at(step):
    return 2.0 + 8.0 * math.exp(-step / 50.0) + 0.02 * math.sin(step)


def expert_loads(step, layers, experts):
    """Expert e of layer l gets 100 tokens, and one of them step tokens more."""
    return [{"layer": layer, "effective": 0.5 * experts, "entropy": 1.5,
             "counts": [100 + step * (e == layer % experts) for e in range(experts)]}
            for layer in range(layers)]


def step_record(step, attempt, now):
    return {"step": step, "attempt": attempt, "loss": loss_at(step),
            "grad_norm": 1.0 + 0.2 * math.cos(step), "lr": 3e-4 * min(1.0, step / 20.0),
            "step_time_s": 0.5, "data_time_s": 0.01, "seqs_per_s": 16.0, "tokens_per_s": 8192.0,
            "mfu": 0.42, "mfu_causal": 0.4, "tflops_per_device": 10.0, "tokens": step * 8192,
            "memory_peak_bytes": 5 * 10**9, "host_memory_bytes": 4 * 10**9,
            "host_anonymous_bytes": 3 * 10**9, "host_file_bytes": 10**9, "epoch": 0.1,
            "source_tokens": {"wiki": step * 8192}, "time": now}


def status(**changes):
    """The content of status.json as a supervisor writes it."""
    ranks = [{"rank": r, "node": f"n{r // 4}", "coordinates": f"pp 0 dp {r}", "phase": "gradients",
              "step": 50, "busy_seconds": 0.8 if r == 5 else 0.5, "wall_seconds": 0.8,
              "waits_for": "", "waits_seconds": 0.0} for r in range(8)]
    nodes = [{"name": f"n{n}", "state": "up", "ranks": list(range(4 * n, 4 * n + 4)),
              "memory_used_bytes": 10**11, "memory_total_bytes": 5 * 10**11, "cpu_busy": 0.25,
              "devices": [{"name": "cuda:0", "memory_used_bytes": 6 * 10**10,
                           "memory_total_bytes": 8 * 10**10, "busy": 0.97}]} for n in range(2)]
    return {"state": "training", "since": time.time(), "updated": time.time(), "job": "77",
            "host": "n0", "pid": 1, "restarts": 1, "max_restarts": 10, "cause": "", "nodes": nodes,
            "ranks": ranks, **changes}
