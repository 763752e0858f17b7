import sys

import pytest
from programs import BIN, SOURCE, run_program

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
    return run_program


@pytest.fixture(scope="session")
def binary():
    """The path of a program of the build, for tests that start it themselves."""
    return lambda program: str(BIN / program)
