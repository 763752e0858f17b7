"""One save of a state of MEGABYTES by torch.save, DCP or its asynchronous form, as JSON.

    peer_save.py KIND DIR MEGABYTES      KIND: torch.save | dcp | dcp-async
"""

import json
import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

PART = 16 << 20


def main(kind, where, megabytes):
    count = int(megabytes) * 1_000_000 // PART
    state = {f"layers.{i}.weight": torch.full((PART // 4,), 0.5) for i in range(count)}
    path = os.path.join(where, "peer")
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    results = []
    if kind != "torch.save":
        dist.init_process_group("gloo", init_method=f"file://{where}/meeting", rank=0, world_size=1)
    # The first asynchronous save makes its staging memory; the second shows what each costs.
    for _ in range(2):
        shutil.rmtree(path)
        os.makedirs(path)
        start = time.perf_counter()
        if kind == "torch.save":
            with open(os.path.join(path, "state.pt"), "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            stall = durable = time.perf_counter() - start
        elif kind == "dcp":
            dcp.save(state, checkpoint_id=path)
            stall = durable = time.perf_counter() - start
        else:
            pending = dcp.async_save(state, checkpoint_id=path)
            stall = time.perf_counter() - start
            pending.result()
            durable = time.perf_counter() - start
        results.append({"kind": kind, "bytes": count * PART, "stall_s": stall, "durable_s": durable})
    shutil.rmtree(path)
    if kind != "torch.save":
        dist.destroy_process_group()
        if os.path.exists(os.path.join(where, "meeting")):
            os.remove(os.path.join(where, "meeting"))
    print(json.dumps(results[-1]))


if __name__ == "__main__":
    torch.set_num_threads(os.cpu_count())
    main(*sys.argv[1:4])
