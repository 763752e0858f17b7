"""What is known of the device's memory."""

from . import _C


def memory_stats(device=None) -> dict:
    stats = _C._get_memory_stats(-1)
    return {
        "allocated_bytes.all.current": stats["used_bytes"],
        "allocated_bytes.all.peak": stats["peak_bytes"],
        "reserved_bytes.all.current": stats["used_bytes"],
        "reserved_bytes.all.peak": stats["peak_bytes"],
    }


def memory_allocated(device=None) -> int:
    return _C._get_memory_stats(-1)["used_bytes"]


def max_memory_allocated(device=None) -> int:
    return _C._get_memory_stats(-1)["peak_bytes"]


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device=None) -> None:
    _C._reset_peak()
