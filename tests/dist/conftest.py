import os

import pytest
from layouts import build_store, run_layout, train, write_run


@pytest.fixture(scope="session")
def store(run, tmp_path_factory):
    """A token store with documents, for every run of a suite."""
    return build_store(run, tmp_path_factory.mktemp("data"))


def of_the_device():
    """The settings of the software accelerator that a test has made: two runs under different
    settings are different runs."""
    return sorted(kv for kv in os.environ.items() if kv[0].startswith("SOFTDEV_"))


@pytest.fixture(scope="session")
def judged(run, store, tmp_path_factory):
    """Trains a layout and returns what it is compared by; each kind of run is trained once per
    suite."""
    done = {}

    def call(layout, *sets, **model_changes):
        key = repr((layout, sets, sorted(model_changes.items()), of_the_device()))
        if key not in done:
            done[key] = run_layout(run, tmp_path_factory.mktemp("judged"), store, layout, *sets,
                                   **model_changes)
        return done[key]

    return call


@pytest.fixture(scope="session")
def trained(run, store, tmp_path_factory):
    """Trains a layout as a user would and returns its directory; each kind of run is trained once
    per suite."""
    done = {}

    def call(layout, *sets, copy=0, **model_changes):
        key = repr((layout, sets, copy, model_changes, of_the_device()))
        if key not in done:
            path = tmp_path_factory.mktemp("trained")
            ranks, keys = layout
            train(run, write_run(path, store, **model_changes), *keys, *sets, ranks=ranks)
            done[key] = path / "run"
        return done[key]

    return call
