"""PyTorch's distributed checkpoints as bench_load.py wants them: one rank that saves or loads
a made-up training state in a layout; rank 0 prints one JSON object.
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment."""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

HIDDEN, KEYS, FEED_FORWARD = 1024, 256, 2560
# name, shape, the dim that tp cuts
MATRICES = [("self_attn.q_proj", (HIDDEN, HIDDEN), 0), ("self_attn.k_proj", (KEYS, HIDDEN), 0),
            ("self_attn.v_proj", (KEYS, HIDDEN), 0), ("self_attn.o_proj", (HIDDEN, HIDDEN), 1),
            ("mlp.gate_proj", (FEED_FORWARD, HIDDEN), 0),
            ("mlp.up_proj", (FEED_FORWARD, HIDDEN), 0),
            ("mlp.down_proj", (HIDDEN, FEED_FORWARD), 1), ("input_layernorm", (HIDDEN,), None)]
KINDS = ["weight", "exp_avg", "exp_avg_sq"]


def value_of(kind, name, shape):
    salt = len(kind) * 31 + len(name)
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + salt) % 65536).to(torch.float32).reshape(shape)


def part(shape, placement, mesh):
    """Extents and offsets of this rank's part."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    return compute_local_shape_and_global_offset(shape, mesh, [placement])


def state_of(layout, layers, rank, ranks, mesh, filled):
    """A flat dictionary of tensors: DTensors where they are cut."""
    state = {}
    for kind in KINDS:
        for layer in range(layers):
            if layout == "pp" and layer * ranks // layers != rank:
                continue
            for name, shape, dim in MATRICES:
                key = f"{kind}.model.layers.{layer}.{name}.weight"
                if layout == "pp" or ranks == 1:
                    state[key] = local(kind, key, shape, shape, (0,) * len(shape), filled)
                    continue
                placement = Shard(0) if layout == "zero" else (
                    Shard(dim) if dim is not None else Replicate())
                extent, offset = part(shape, placement, mesh)
                data = local(kind, key, shape, extent, offset, filled)
                state[key] = DTensor.from_local(data, mesh, [placement], shape=torch.Size(shape),
                                                stride=data.new_empty(shape).stride(),
                                                run_check=False)
    return state


def local(kind, key, shape, extent, offset, filled):
    if not filled:
        return torch.empty(extent).fill_(0)  # its pages are there
    where = tuple(slice(o, o + e) for o, e in zip(offset, extent))
    return value_of(kind, key, shape)[where].contiguous()


def rchar():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def total(value, operation):
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, operation)
    return tensor.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["save", "load"])
    parser.add_argument("dir")
    parser.add_argument("layout", choices=["zero", "tp", "pp"])
    parser.add_argument("layers", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    saves = options.verb == "save"
    state = state_of(options.layout, options.layers, rank, ranks, mesh, filled=saves)
    dist.barrier()
    before, start = rchar(), time.perf_counter()
    if saves:
        dcp.save(state, checkpoint_id=options.dir)
    else:
        dcp.load(state, checkpoint_id=options.dir)
    seconds = total(time.perf_counter() - start, dist.ReduceOp.MAX)
    read = total(rchar() - before, dist.ReduceOp.SUM)
    if not saves:
        expected = state_of(options.layout, options.layers, rank, ranks, mesh, filled=True)
        for key, tensor in state.items():
            ours, theirs = (t.to_local() if isinstance(t, DTensor) else t
                            for t in (tensor, expected[key]))
            assert torch.equal(ours, theirs), key
    if rank == 0:
        print(json.dumps({"seconds": seconds, "rchar": int(read)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
