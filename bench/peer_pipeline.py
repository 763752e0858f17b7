"""The torch.distributed.pipelining side of bench_pipeline.py: the same sleeping stages in
processes over gloo. Prints one JSON object a line, as bench_pipeline does."""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules

SHAPE = (256, 1024)
# name -> (schedule, stages per rank, the bubble in units for p - 1 = 1)
CASES = {
    "gpipe": (schedules.ScheduleGPipe, 1, 3.0),
    "1f1b": (schedules.Schedule1F1B, 1, 3.0),
    "interleaved v=2": (schedules.ScheduleInterleaved1F1B, 2, 1.5),
    "zb-h1": (schedules.ScheduleInterleavedZeroBubble, 1, 1.0),
}


busy = 0.0


def sleep(seconds):
    """As bench_pipeline does it: the last two milliseconds are polled, and what was really
    spent counts as work."""
    global busy
    begin = time.monotonic()
    time.sleep(max(0.0, seconds - 0.002))
    while time.monotonic() < begin + seconds:
        time.sleep(0)
    busy += time.monotonic() - begin


class SleepInput(torch.autograd.Function):
    """The identity; a unit forward, and a unit for the gradient of the input."""

    @staticmethod
    def forward(ctx, x, anchor, unit):
        ctx.unit = unit
        sleep(unit)
        return x + 0.0

    @staticmethod
    def backward(ctx, grad):
        sleep(ctx.unit)
        of_input, of_anchor, _ = ctx.needs_input_grad
        return (grad.contiguous() if of_input else None,
                torch.zeros(1) if of_anchor else None, None)


class SleepWeight(torch.autograd.Function):
    """Zero; a unit for the gradient of the weight, apart from that of the input."""

    @staticmethod
    def forward(ctx, weight, unit):
        ctx.unit = unit
        return torch.zeros(1)

    @staticmethod
    def backward(ctx, grad):
        sleep(ctx.unit)
        return torch.zeros(1), None


class Stage(torch.nn.Module):
    def __init__(self, unit, first):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        # The first stage's input needs no gradient; this makes it work as the others do.
        self.anchor = torch.nn.Parameter(torch.zeros(1)) if first else None
        self.unit = unit

    def forward(self, x):
        return (SleepInput.apply(x, self.anchor, self.unit)
                + SleepWeight.apply(self.weight, self.unit))


def measure(name, rank, ranks, micro_batches, unit, steps):
    kind, chunks, formula = CASES[name]
    stages = [pipelining.PipelineStage(Stage(unit / chunks, c + rank == 0), c * ranks + rank,
                                       ranks * chunks, torch.device("cpu"))
              for c in range(chunks)]
    single = issubclass(kind, schedules.PipelineScheduleSingle)
    schedule = kind(stages[0] if single else stages, n_microbatches=micro_batches,
                    loss_fn=lambda output, target: output.sum())
    x = torch.zeros(SHAPE[0] * micro_batches, SHAPE[1])
    target = torch.zeros(SHAPE[0] * micro_batches, 1)
    seconds, bubbles = [], []
    for _ in range(steps + 1):  # the first warms up
        dist.barrier()
        global busy
        busy, begin = 0.0, time.monotonic()
        schedule.step(*([x] if rank == 0 else []),
                      **({"target": target} if rank == ranks - 1 else {}))
        spent = torch.tensor(time.monotonic() - begin, dtype=torch.float64)
        total = torch.tensor(busy, dtype=torch.float64)
        dist.all_reduce(spent, op=dist.ReduceOp.MAX)
        dist.all_reduce(total)
        seconds.append(spent.item())
        bubbles.append(100 * (1 - total.item() / (ranks * spent.item())))
    if rank == 0:
        best = min(seconds[1:])
        work, bubble = 3 * unit * micro_batches, formula * unit * (ranks - 1)
        print(json.dumps(dict(schedule=name, ranks=ranks, micro_batches=micro_batches,
                              seconds=round(best, 4),
                              bubble=round(bubbles[seconds.index(best)], 2),
                              formula=round(100 * bubble / (work + bubble), 2))), flush=True)


def run(rank, options):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    for rounds in (1, 2, 8):
        for name in options.schedules or CASES:
            measure(name, rank, options.ranks, rounds * options.ranks,
                    options.unit_ms * 1e-3, options.steps)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--unit-ms", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--port", type=int, default=29511)
    parser.add_argument("--schedules", nargs="*", choices=CASES)
    options = parser.parse_args()
    mp.spawn(run, args=(options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
