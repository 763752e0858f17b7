"""Runs the programs of a build."""

import os
import pathlib
import re
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", SOURCE / "build" / "bin"))


def later(*cases):
    """Marks cases that show the same as the cases beside them: `make soak` runs them, and `make
    test` does not."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.soak)
            for case in cases]


def split(cases, now):
    """Returns all cases, those of `now` first. `make test` runs the cases of `now`, and `make soak`
    runs the others."""
    cases = list(cases)
    unknown = [case for case in now if case not in cases]
    assert not unknown, f"{unknown} are no cases"
    return [*now, *later(*(case for case in cases if case not in now))]


def plant_libraries(programs, folder):
    """Makes a folder with a file under the name of each library that the programs load. The files
    are no libraries, so a program that loaded one from there would not start."""
    folder.mkdir()
    for program in ("longhaul", "longhaul-torch"):
        loaded = subprocess.run(["ldd", programs / program], check=True, capture_output=True,
                                text=True).stdout
        for name in re.findall(r"^\s*(lib\S+)", loaded, re.M):
            (folder / name).write_text("no library")
    assert (folder / "libzstd.so.1").exists() and (folder / "libtorch_cpu.so").exists()


def command_of(program, arguments, ranks=1, nodes=1):
    """Returns the words and the environment that start a program on `ranks` ranks. In
    equal parts they pretend to be on `nodes` machines, or on machines of these names."""
    command = [str(BIN / program), *map(str, arguments)]
    environment = dict(os.environ)
    if ranks == 1:
        return command, environment
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    words = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    if nodes == 1:
        return [*words, "-n", str(ranks), *command], environment
    names = range(nodes) if isinstance(nodes, int) else nodes
    for name in names:
        words += [":"] * (words[-1] != "none")
        words += ["-n", str(ranks // len(names)), "env", f"LONGHAUL_NODE_NAME={name}", *command]
    return words, environment


def run_program(program, *arguments, check=True, ranks=1, nodes=1, **options):
    """Returns the completed process; with `check`, raises AssertionError unless it ended with 0. A
    program that does not end is killed before ctest ends the suite, so that the test tells which
    command it was."""
    command, environment = command_of(program, arguments, ranks, nodes)
    environment.update(options.pop("env", {}))
    options = {"timeout": 200, **options}
    try:
        result = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    except subprocess.TimeoutExpired as late:
        said = "\n".join((text or b"").decode(errors="replace") for text in (late.stdout, late.stderr))
        raise AssertionError(f"{' '.join(command)} did not end in {late.timeout} s\n{said}") from None
    if check and result.returncode != 0:
        raise AssertionError(
            f"{program} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
        )
    return result
