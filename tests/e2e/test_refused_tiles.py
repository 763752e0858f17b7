"""On a CPU with AMX the operating system may refuse the tiles, as the filter of a container
does."""

import ctypes
import json
import pathlib
import re
import struct
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import curve, write_config  # noqa: E402

REFUSAL = ("AMX is not used: the operating system does not grant its tiles: Linux 5.16 or newer "
           "does, where no container's seccomp filter refuses arch_prctl")


def refuse_tiles():
    """Makes arch_prctl(ARCH_REQ_XCOMP_PERM) fail with EPERM from here on, in children too."""
    arch_prctl, request = 158, 0x1023
    number, first_argument = 0, 16  # offsets in struct seccomp_data
    load, equal, give = 0x20, 0x15, 0x06  # BPF_LD | W | ABS, BPF_JMP | JEQ | K, BPF_RET | K
    allow, refuse = 0x7FFF0000, 0x00050001
    program = [(load, 0, 0, number), (equal, 0, 3, arch_prctl), (load, 0, 0, first_argument),
               (equal, 0, 1, request), (give, 0, 0, refuse), (give, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    what = Filter(len(program), ctypes.addressof(code))
    for arguments in ((no_new_privileges, 1, 0, 0, 0),
                      (set_seccomp, mode_filter, ctypes.byref(what), 0, 0)):
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


@pytest.fixture
def tiles():
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags"))
    if "amx_bf16" not in flags.split():
        pytest.skip("needs a CPU with AMX")


def train(binary, tmp_path, name, prepare=None):
    config = write_config(tmp_path, name)
    subprocess.run([binary("longhaul"), "train", config, "--set", 'precision.compute="bf16"'],
                   check=True, capture_output=True, preexec_fn=prepare, timeout=120)
    return (tmp_path / name / "log.txt").read_text(), curve(tmp_path / name)


def test_a_run_goes_on_without_them_and_says_why(binary, tmp_path, tiles):
    log, refused = train(binary, tmp_path, "refused", refuse_tiles)
    assert log.count(REFUSAL) == 1
    assert "products in BF16: own, in fp32\n" in log
    granted_log, granted = train(binary, tmp_path, "granted")
    assert REFUSAL not in granted_log
    assert "products in BF16: own, by AMX\n" in granted_log
    assert len(refused) == len(granted) == 8
    for one, other in zip(refused, granted):
        assert one[0] == pytest.approx(other[0], rel=1e-3)


def test_doctor_says_why(binary, tiles):
    shown = subprocess.run([binary("longhaul"), "doctor", "--quick", "--json"], text=True,
                           capture_output=True, preexec_fn=refuse_tiles, timeout=120)
    assert re.search(r"AVX-512 BF16; " + re.escape(REFUSAL), json.dumps(json.loads(shown.stdout)))
