"""The module torch.neuron."""

import torch

from . import _C
from .memory import (  # noqa: F401
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
)


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return _C._is_neuron_runtime_initialized()


def init() -> None:
    _C._neuron_init()


_lazy_init = init


def device_count() -> int:
    return _C._neuron_getDeviceCount()


def current_device() -> int:
    return _C._neuron_getCurrentDevice()


def set_device(device) -> None:
    index = _index(device)
    if not 0 <= index < device_count():
        raise ValueError(f"Invalid device id: {index}. Valid range is 0 to {device_count() - 1}")
    _C._neuron_setDevice(index)


def synchronize(device=None) -> None:
    _C._neuron_synchronize(-1 if device is None else _index(device))


def get_device_properties(device=0):
    """Returns an object with `name`, the instance's name, and `total_memory` in bytes."""
    index = _index(device)
    if not 0 <= index < device_count():
        raise ValueError(f"Invalid device id: {index}")
    _C._neuron_init()
    return _C._neuron_getDeviceProperties(index)


def get_device_name(device=0) -> str:
    return get_device_properties(device).name


def empty_cache() -> None:
    pass


def current_stream(device=None):
    return torch.Stream(device=torch.device("neuron", current_device() if device is None else _index(device)))


default_stream = current_stream


def manual_seed(seed: int) -> None:
    pass


manual_seed_all = manual_seed


def get_rng_state(device="neuron"):
    return torch.get_rng_state()


def set_rng_state(state, device="neuron") -> None:
    torch.set_rng_state(state)


def get_amp_supported_dtype():
    return [torch.bfloat16, torch.float16]


def _is_in_bad_fork() -> bool:
    return False


def _index(device) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "neuron":
        raise ValueError(f"Expected neuron device, got {device.type}")
    return current_device() if device.index is None else device.index
