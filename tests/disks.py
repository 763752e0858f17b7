"""File systems in memory, which tests fill or make read-only."""

import contextlib
import ctypes.util
import os

import pytest

MS_RDONLY, MS_REMOUNT, MNT_DETACH = 1, 32, 2
libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)


class Disk:
    """A file system in memory for one test."""

    def __init__(self, path, size):
        self.path = path
        path.mkdir()
        self._mount(0, size)

    def _mount(self, flags, size):
        if libc.mount(b"tmpfs", str(self.path).encode(), b"tmpfs", flags,
                      f"size={size}".encode()) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def grow(self, size):
        self._mount(MS_REMOUNT, size)

    def freeze(self, size="1m"):
        self._mount(MS_REMOUNT | MS_RDONLY, size)

    def unmount(self):
        libc.umount2(str(self.path).encode(), MNT_DETACH)


@pytest.fixture
def disk(tmp_path):
    with contextlib.ExitStack() as stack:
        def make(size):
            try:
                made = Disk(tmp_path / "disk", size)
            except OSError as error:
                pytest.skip(f"NOT TESTED: full and read-only disks need root to mount a "
                            f"file system ({error})")
            stack.callback(made.unmount)
            return made
        yield make
