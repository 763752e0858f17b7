"""The process group of the device: a Python subclass over gloo and the store.

Each collective is compiled for its shape and its group. A broadcast is an all-reduce of
the root's numbers and zeros. There is no send and no receive.
"""

import os
import socket
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BarrierOptions,
    BroadcastOptions,
    PrefixStore,
    ProcessGroup,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
)

from .. import _C

_WORLD_SIZE = None


def _set_visible_cores(rank: int, size: int, store) -> tuple[int, int]:
    """Chooses the process's core. Returns its number among those of the node, and theirs."""
    local_rank = os.environ.get("LOCAL_RANK")
    local_size = os.environ.get("LOCAL_WORLD_SIZE")
    if local_rank is None or local_size is None:
        host = socket.gethostname()
        store.set(f"worker_{rank}", host)
        hosts = [store.get(f"worker_{other}").decode() for other in range(size)]
        here = [other for other in range(size) if hosts[other] == host]
        local_rank, local_size = here.index(rank), len(here)
    if not os.environ.get("NEURON_RT_VISIBLE_CORES"):
        os.environ["NEURON_RT_VISIBLE_CORES"] = str(local_rank)
    return int(local_rank), int(local_size)


def _set_root_address(rank: int, store) -> None:
    if os.environ.get("NEURON_RT_ROOT_COMM_ID") is not None:
        return
    if rank == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            store.set("NEURON_RT_PORT", str(free.getsockname()[1]))
    port = store.get("NEURON_RT_PORT").decode()
    address = os.environ.get("MASTER_ADDR", "localhost")
    os.environ["NEURON_RT_ROOT_COMM_ID"] = f"{address}:{port}"


def _start_runtime(rank: int, size: int, store) -> None:
    if _C._is_neuron_runtime_initialized():
        raise AssertionError(
            "Neuron runtime should not be initialized before the init_process_group."
        )
    local_rank, local_size = _set_visible_cores(rank, size, store)
    _set_root_address(rank, store)
    if _C._vnc_count() != 1:
        raise AssertionError(
            "Attempted to have more than one device per process in distributed setup"
        )
    _C._set_world_size(size)
    _C._set_rank(rank)
    _C._set_local_world_size(local_size)
    _C._set_local_device_start_index(local_rank)
    _C._neuron_init()


class NeuronWork(dist._Work):
    """A collective under way: its results stand in the outputs once it was waited for."""

    def __init__(self, under_way, finish, outputs):
        super().__init__()
        self._under_way = under_way
        self._finish = finish
        self._outputs = outputs
        self._lock = threading.Lock()

    def wait(self, timeout=timedelta(0)):
        with self._lock:
            if self._finish is not None:
                if self._under_way is not None:
                    self._under_way.wait()
                self._finish()
                self._finish = self._under_way = None
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        if self._finish is None:
            return True
        if self._under_way is not None and not self._under_way.is_completed():
            return False
        return self.wait()

    def is_success(self):
        return self.is_completed()

    def result(self):
        self.wait()
        return self._outputs

    def get_future(self):
        self.wait()
        future = torch.futures.Future()
        future.set_result(self._outputs)
        return future


def _reduced(parts: list[torch.Tensor], op) -> torch.Tensor:
    """Returns the reduction of the ranks' parts, in the order of the ranks."""
    dtype = parts[0].dtype
    total = parts[0].float() if dtype in (torch.bfloat16, torch.float16) else parts[0].clone()
    for part in parts[1:]:
        if op == ReduceOp.SUM or op == ReduceOp.AVG:
            total += part
        elif op == ReduceOp.MAX:
            total = torch.maximum(total, part.to(total.dtype))
        elif op == ReduceOp.MIN:
            total = torch.minimum(total, part.to(total.dtype))
        elif op == ReduceOp.PRODUCT:
            total *= part
        else:
            raise ValueError(f"neuron stand-in: reductions do not know {op}")
    if op == ReduceOp.AVG:
        total /= len(parts)
    return total.to(dtype)


class ProcessGroupNeuron(ProcessGroup):
    """The group "neuron". The first one of a process starts the runtime."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        global _WORLD_SIZE
        if _WORLD_SIZE is None:
            _start_runtime(rank, size, store)
            _WORLD_SIZE = size
        self._group_name = "default"
        self._host = dist.ProcessGroupGloo(PrefixStore("host", store), rank, size, timeout)

    def getBackendName(self):  # noqa: N802
        return "neuron"

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def _get_backend(self, device):
        return self

    @property
    def group_name(self):
        return self._group_name

    @property
    def _device_types(self):
        return [torch.device("neuron")]

    def _gather(self, name, outputs, tensor, finish):
        """Starts a collective: gathers the ranks' tensors and gives them to `finish`."""
        written = [t for t in outputs if t is not tensor]
        cpu, text, _, _ = _C._open(name, (1 << len(written)) - 1, (*written, tensor))
        if any(t is tensor for t in outputs):
            cpu, text, _, _ = _C._open(name, 1, (tensor,))
        ranks = dist.get_process_group_ranks(self)
        _C._need_key(name, f"{name}({text};{ranks})")
        mine = cpu[-1].contiguous().clone()
        parts = [torch.empty_like(mine) for _ in range(self.size())]
        bytes_of = lambda t: t.reshape(-1).view(torch.uint8)  # noqa: E731
        under_way = None
        if mine.numel() > 0:
            under_way = self._host.allgather(
                [[bytes_of(part) for part in parts]], [bytes_of(mine)], AllgatherOptions()
            )
        return NeuronWork(under_way, lambda: finish(parts), list(outputs))

    def allreduce(self, tensors, opts=None):
        tensor = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
        op = (opts or AllreduceOptions()).reduceOp

        def finish(parts):
            _C._as_cpu(tensor).copy_(_reduced(parts, op))

        return self._gather("neuron::all_reduce", [tensor], tensor, finish)

    def _allgather_base(self, output, tensor, opts=None):
        def finish(parts):
            joined = torch.cat([part.reshape(-1) for part in parts])
            _C._as_cpu(output).copy_(joined.view(output.shape))

        return self._gather("neuron::all_gather", [output], tensor, finish)

    # The names by which PyTorch 2.13 calls them.
    all_gather_single = _allgather_base

    def allgather(self, output_lists, tensors, opts=None):
        outputs = output_lists[0]

        def finish(parts):
            for output, part in zip(outputs, parts, strict=True):
                _C._as_cpu(output).copy_(part)

        return self._gather("neuron::all_gather", outputs, tensors[0], finish)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        op = (opts or ReduceScatterOptions()).reduceOp

        def finish(parts):
            rank, count = self.rank(), output.numel()
            mine = [part.reshape(-1)[rank * count : (rank + 1) * count] for part in parts]
            _C._as_cpu(output).copy_(_reduced(mine, op).view(output.shape))

        return self._gather("neuron::reduce_scatter", [output], tensor, finish)

    reduce_scatter_single = _reduce_scatter_base

    def broadcast(self, tensors, opts=None):
        root = (opts or BroadcastOptions()).rootRank
        if not 0 <= root < self.size():
            raise ValueError(f"Invalid rootRank {root} for broadcast with world size {self.size()}")
        if self.rank() != root:
            with torch.no_grad():
                tensors[0].zero_()
        options = AllreduceOptions()
        options.reduceOp = ReduceOp.SUM
        return self.allreduce(tensors, options)

    def reduce(self, tensors, opts=None):
        options = opts or ReduceOptions()

        def finish(parts):
            if self.rank() == options.rootRank:
                _C._as_cpu(tensors[0]).copy_(_reduced(parts, options.reduceOp))

        return self._gather("neuron::reduce", [tensors[0]], tensors[0], finish)

    def barrier(self, opts=None):
        if dist.get_world_size() != self.size():
            raise NotImplementedError(
                f"Barrier is implemented only for default group, called barrier on {self}"
            )
        work = self._host.barrier(BarrierOptions())
        return NeuronWork(work, lambda: None, [])


def _create_group(store, rank, size, timeout):
    return ProcessGroupNeuron(store, rank, size, timeout)


dist.Backend.register_backend("neuron", _create_group, devices=["neuron"])
