import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("resume", "dist", "e2e"))]
import slurm_cluster  # noqa: E402

NODES = 6  # four that train and two to take their places


@pytest.fixture(scope="session")
def whole_cluster():
    with slurm_cluster.running(NODES) as made:
        yield made


@pytest.fixture
def cluster(whole_cluster, request):
    """The cluster, with all of its nodes idle. Its daemons' logs are printed when a test fails."""
    yield whole_cluster
    report = getattr(request.node, "report", None)
    if report is not None and report.failed:
        print(whole_cluster.logs())
    whole_cluster.clear()


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.report = report


@pytest.fixture
def folder(cluster, request):
    """A directory of the test that every node sees."""
    path = cluster.shared / request.node.name
    path.mkdir()
    return path
