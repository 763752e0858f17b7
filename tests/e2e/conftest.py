import shutil

import pytest
from small_model import TRAINING, make_model, write_corpus


@pytest.fixture(scope="session")
def made(run, tmp_path_factory):
    """A sound model, corpus and store, made once."""
    root = tmp_path_factory.mktemp("made")
    make_model(root / "models" / "small")
    write_corpus(root / "corpus")
    run("longhaul", "data", "build", root / "corpus" / "*.txt", "--tokenizer",
        root / "models/small", "--out", root / "data/mine", "--holdout", "20%")
    return root


@pytest.fixture
def root(made, tmp_path):
    """A copy that a test may spoil."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run.toml").write_text(TRAINING)
    return tmp_path
