"""How many threads a run computes with, how they wait for each other, and the large pages they
are given."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import write_config  # noqa: E402

DECIDES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GLIBC_TUNABLES")


def environment(**variables):
    """The environment of a person who has set no variable of OpenMP or the C library."""
    return {**{k: v for k, v in os.environ.items() if k not in DECIDES}, **variables}


def policies(binary, **variables):
    """The number of spins that the OpenMP library reports, once for each time it was loaded."""
    shown = subprocess.run([binary("longhaul-torch"), "--version"], text=True, capture_output=True,
                           env=environment(OMP_DISPLAY_ENV="verbose", **variables), check=True)
    assert "LibTorch" in shown.stdout
    return re.findall(r"^ *(?:\[host\] )?GOMP_SPINCOUNT = '(\d+)'", shown.stderr, re.M)


def test_threads_that_wait_give_up_the_core_soon(binary):
    # The library is loaded once: the program that starts itself again has loaded no library before.
    assert policies(binary) == ["3000"]


@pytest.mark.parametrize("variable, value, spins", [
    ("GOMP_SPINCOUNT", "77", lambda n: n == 77),
    ("OMP_WAIT_POLICY", "passive", lambda n: n == 0),
    ("OMP_WAIT_POLICY", "active", lambda n: n > 10 ** 6),
])
def test_who_sets_how_they_wait_has_decided(binary, variable, value, spins):
    (count,) = policies(binary, **{variable: value})
    assert spins(int(count))


@contextlib.contextmanager
def running_program(binary, tmp_path, program="longhaul", **variables):
    """A training that has printed its first line: its arguments and its folder in /proc."""
    words = [binary(program), "train", str(write_config(tmp_path)), "--set", "run.steps=1000000"]
    process = subprocess.Popen(words, env=environment(**variables), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    try:
        assert "error" not in process.stdout.readline()
        yield words, pathlib.Path(f"/proc/{process.pid}")
    finally:
        process.kill()
        process.wait(timeout=60)


def test_starting_again_changes_neither_name_nor_arguments_nor_the_environment(binary, tmp_path):
    with running_program(binary, tmp_path, KEPT="yes") as (words, proc):
        assert proc.joinpath("comm").read_text() == "longhaul-torch\n"
        assert proc.joinpath("cmdline").read_bytes() == "\0".join(words).encode() + b"\0"
        variables = proc.joinpath("environ").read_bytes().split(b"\0")
        assert b"KEPT=yes" in variables
        assert variables.count(b"GOMP_SPINCOUNT=3000") == 1
        assert variables.count(b"GLIBC_TUNABLES=glibc.malloc.hugetlb=1") == 1


def started_environment(binary, tmp_path, program, **variables):
    with running_program(binary, tmp_path, program, **variables) as (_, proc):
        lines = proc.joinpath("environ").read_text().split("\0")
        return dict(line.split("=", 1) for line in lines if line)


@pytest.mark.parametrize("program", ["longhaul", "longhaul-torch"])
def test_each_variable_that_is_not_set_is_added_beside_one_that_is(binary, tmp_path, program):
    found = started_environment(binary, tmp_path, program, OMP_WAIT_POLICY="active")
    assert "GOMP_SPINCOUNT" not in found
    assert found["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


@pytest.mark.parametrize("program", ["longhaul", "longhaul-torch"])
def test_who_sets_how_memory_is_had_has_decided(binary, tmp_path, program):
    found = started_environment(binary, tmp_path, program, GLIBC_TUNABLES="glibc.malloc.hugetlb=0")
    assert found["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=0"
    assert found["GOMP_SPINCOUNT"] == "3000"


def threads_line(binary, tmp_path, *sets, cpus=None, **variables):
    config = write_config(tmp_path)
    words = [binary("longhaul"), "train", config, "--set", "run.steps=1",
             "--set", "schedule.warmup_steps=0", "--set", "checkpoint.every=0",
             *[word for s in sets for word in ("--set", s)]]
    subprocess.run(words, env=environment(**variables), check=True, capture_output=True,
                   preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None)
    log = (tmp_path / "run" / "log.txt").read_text()
    return re.search(r"\d+ threads? per rank, from .*", log).group(0)


def test_the_environments_number_of_threads_is_obeyed(binary, tmp_path):
    line = threads_line(binary, tmp_path, "run.threads=0", OMP_NUM_THREADS="3")
    assert line.startswith("3 threads per rank, from OMP_NUM_THREADS")
    assert line.endswith("spin 3000 rounds, then sleep (GOMP_SPINCOUNT)")


def test_what_the_configuration_overrides_is_said(binary, tmp_path):
    line = threads_line(binary, tmp_path, "run.threads=1", OMP_NUM_THREADS="3")
    assert line == "1 thread per rank, from run.threads, over OMP_NUM_THREADS=3"


def test_the_jobs_cpu_set_is_obeyed(binary, tmp_path):
    one = {max(os.sched_getaffinity(0))}
    line = threads_line(binary, tmp_path, "run.threads=0", cpus=one)
    assert line == "1 thread per rank, from its share of the CPUs of the job on this machine"
