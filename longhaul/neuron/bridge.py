"""What the program calls in its interpreter. Each function takes and returns JSON."""

import json
import signal  # noqa: F401  its import takes SIGINT, which the program then takes back
import sys


def longhaul_call(function, text):
    """Calls a function of this file. An exception comes back as its text."""
    try:
        return json.dumps({"result": globals()["longhaul_" + function](**json.loads(text))})
    except BaseException as error:  # a SystemExit must not end the program
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def longhaul_interpreter():
    return {"version": ".".join(map(str, sys.version_info[:3])), "prefix": sys.prefix}


def longhaul_load():
    """Loads the backend, whose runtime does not start yet. Returns its version."""
    sys.argv = ["longhaul"]
    import torch
    import torch_neuronx
    name = torch._C._get_privateuse1_backend_name()
    module = getattr(torch, "neuron", None)
    if name != "neuron" or module is None:
        return {"registered": name if name != "neuron" else "neuron, without torch.neuron"}
    return {
        "registered": name,
        "version": getattr(torch_neuronx, "__version__", ""),
        "listed": all(hasattr(torch_neuronx, f) for f in ("get_fallback_ops", "clear_op_tracking")),
    }


def longhaul_device():
    """Starts the runtime. Returns the number of devices and the instance's name."""
    import torch
    count = torch.neuron.device_count()
    index = torch.neuron.current_device() if count else 0
    return {"devices": count, "instance": torch.neuron.get_device_properties(index).name if count else ""}


class Groups:
    """The process groups of this process and the operations under way."""

    def __init__(self):
        self.store = None
        self.groups = []
        self.made = {}
        self.works = {}
        self.started = 0


groups = Groups()


def longhaul_store(address, ranks, seconds):
    """Makes the store by which the ranks meet, on the first of them. Returns its port."""
    from datetime import timedelta

    import torch.distributed as dist
    groups.store = dist.TCPStore(address, 0, ranks, is_master=True, wait_for_workers=False,
                                 timeout=timedelta(seconds=seconds))
    return groups.store.port


def longhaul_join(address, port, rank, ranks, seconds):
    """Makes the process group of all ranks, which starts the backend's runtime."""
    import os
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    if "neuron" not in dist.Backend.backend_list:
        import torch_neuronx.distributed.backend  # noqa: F401
    os.environ.setdefault("MASTER_ADDR", address)
    limit = timedelta(seconds=seconds)
    if groups.store is None:
        groups.store = dist.TCPStore(address, port, ranks, is_master=False, timeout=limit)
    dist.init_process_group("neuron", store=groups.store, rank=rank, world_size=ranks, timeout=limit)
    library = torch.library.Library("longhaul_neuron", "DEF")
    library.define("start(int group, str verb, str op, int root, Tensor input, Tensor(a!) output) -> int")
    library.impl("start", start, "CompositeExplicitAutograd")
    groups.library = library
    return dist.get_backend()


def longhaul_group(name, ranks, seconds):
    """Makes a process group of these ranks. Returns its number."""
    from datetime import timedelta

    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    # The same ranks may have several groups, which they make in one order.
    key = f"longhaul {name} {ranks}"
    count = groups.made[key] = groups.made.get(key, 0) + 1
    rank = ranks.index(dist.get_rank())
    group, _ = c10d._new_process_group_helper(
        len(ranks), rank, ranks, "neuron", groups.store, group_name=f"{key} {count}",
        timeout=timedelta(seconds=seconds))
    c10d._world.pg_group_ranks[group] = {member: place for place, member in enumerate(ranks)}
    groups.groups.append(group)
    return len(groups.groups) - 1


def start(group, verb, op, root, input, output):  # noqa: A002
    """Starts an operation of a group and returns its number."""
    import torch.distributed as dist
    of = groups.groups[group]
    reduce = dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM
    if verb == "all_reduce":
        options = dist.AllreduceOptions()
        options.reduceOp = reduce
        work = of.allreduce([output], options)
    elif verb == "all_gather":
        work = of._allgather_base(output, input)
    elif verb == "reduce_scatter":
        options = dist.ReduceScatterOptions()
        options.reduceOp = reduce
        work = of._reduce_scatter_base(output, input, options)
    else:
        options = dist.BroadcastOptions()
        options.rootRank = root
        work = of.broadcast([output], options)
    groups.started += 1
    groups.works[groups.started] = work
    return groups.started


def longhaul_is_done(operation):
    return groups.works[operation].is_completed()


def longhaul_order(operation):
    """Puts what follows in the device's stream behind an operation."""
    groups.works.pop(operation).wait()


def longhaul_wait_for_device():
    import torch
    torch.neuron.synchronize()


def longhaul_fallbacks():
    """Returns the names of the operators that ran on the CPU since the last call."""
    import torch_neuronx
    names = sorted(torch_neuronx.get_fallback_ops())
    torch_neuronx.clear_op_tracking()
    return names


def longhaul_memory(index):
    """Returns bytes: all of a device's memory, what the allocator holds of it, what tensors have,
    and the most that they had. What the backend does not tell is 0."""
    import torch

    def told(ask):
        try:
            return int(ask(torch.neuron))
        except Exception:  # a run goes on without this knowledge
            return 0

    used = told(lambda module: module.memory_allocated(index))
    return {
        "total": told(lambda module: module.get_device_properties(index).total_memory),
        "held": max(used, told(lambda module: module.memory_reserved(index))),
        "used": used,
        "peak": told(lambda module: module.max_memory_allocated(index)),
    }


def longhaul_close():
    """Waits for the device and runs what packages have registered for the end."""
    import atexit

    import torch
    try:
        torch.neuron.synchronize()
    except Exception as error:  # what failed on the device has ended the run by its own message
        print(f"the device did not finish its work: {error}", file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
