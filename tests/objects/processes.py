"""The processes that a program has started, and whether they have ended."""

import contextlib
import os
import pathlib
import signal
import time


def descendants(pid):
    """All processes below `pid` that still live."""
    try:
        found = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [p for child in map(int, found) for p in (child, *descendants(child))]


def arguments_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def alive(pid):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


def wait_until_gone(pids, seconds=5):
    limit = time.monotonic() + seconds
    while any(map(alive, pids)):
        assert time.monotonic() < limit, pids
        time.sleep(0.05)


def kill_all(process):
    """Kills a program and the processes that it has started until that moment."""
    for pid in (*descendants(process.pid), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
