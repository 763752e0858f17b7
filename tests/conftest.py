import os
import pathlib
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", SOURCE / "build" / "bin"))
sys.path.insert(0, str(SOURCE / "tests" / "parity"))


def pytest_addoption(parser):
    parser.addoption("--soak", action="store_true",
                     help="the cases that are marked soak, and no others")


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: another case of what a quicker one shows")


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--soak")
    left_out = [i for i in items if (i.get_closest_marker("soak") is not None) != wanted]
    items[:] = [i for i in items if i not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def run():
    """Runs a program of the build; returns the completed process."""

    def call(program, *arguments, check=True, ranks=1, **options):
        command = [str(BIN / program), *map(str, arguments)]
        environment = dict(os.environ, **options.pop("env", {}))
        if ranks > 1:
            environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none",
                       *command]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300,
                                env=environment, **options)
        if check and result.returncode != 0:
            raise AssertionError(
                f"{program} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
            )
        return result

    return call


@pytest.fixture(scope="session")
def binary():
    """The path of a program of the build, for tests that start it themselves."""
    return lambda program: str(BIN / program)
