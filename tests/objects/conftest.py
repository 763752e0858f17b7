import pathlib
import re
import sys

import pytest

for folder in ("resume", "e2e"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))
from fault_proxy import FaultProxy  # noqa: E402
from mirrored_run import EVERY, Run, sets  # noqa: E402
from runs import write_config  # noqa: E402
from servers import environment, forget_other_stores, serve  # noqa: E402

forget_other_stores()


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    """Returns the Store of a server by its name, which is started when it is asked for first."""
    running = {}

    def get(name):
        if name not in running:
            manager = serve(name, tmp_path_factory.mktemp(name))
            running[name] = (manager, manager.__enter__())
        return running[name][1]

    yield get
    for manager, _ in running.values():
        manager.__exit__(None, None, None)


@pytest.fixture(scope="session")
def store(servers):
    """The server that is quicker than the other one and checks signatures."""
    return servers("rclone")


@pytest.fixture
def proxy(store):
    with FaultProxy(store.endpoint) as running:
        yield running


@pytest.fixture
def env(tmp_path, store):
    """An environment in which programs find the server itself; in that of `proxied` they find the
    proxy before it."""
    return environment(tmp_path / "home", store.endpoint)


@pytest.fixture
def proxied(tmp_path, proxy):
    def make(patience=None, **more):
        return environment(tmp_path / "home", proxy.endpoint, patience=patience, **more)
    return make


@pytest.fixture(scope="session")
def local(run, tmp_path_factory):
    """A model, a store, a state dict of PyTorch and a run, as local files."""
    import torch
    from small_model import make_model, write_corpus
    from transformers import LlamaForCausalLM

    root = tmp_path_factory.mktemp("made")
    make_model(root / "model")
    write_corpus(root / "corpus")
    run("longhaul", "data", "build", root / "corpus/*.txt", "--tokenizer", root / "model", "--out",
        root / "store", "--holdout", "20%")
    state = LlamaForCausalLM.from_pretrained(root / "model").state_dict()
    torch.save(state, root / "state.pt")
    (root / "training").mkdir()
    run("longhaul", "train", write_config(root / "training"), "--set", "run.steps=4")
    (root / "training/run").rename(root / "run")
    return root


@pytest.fixture(scope="session")
def filled(store, local):
    for name in ("model", "store", "store-val"):
        store.put_folder(name, local / name)
    store.put_file("state.pt", local / "state.pt")
    store.put_folder("run", local / "run")
    return store


@pytest.fixture(scope="session")
def whole(run, tmp_path_factory):
    """Returns the directory of an undisturbed run without a mirror."""
    done = {}

    def get(*more, ranks=1):
        if (more, ranks) not in done:
            root = tmp_path_factory.mktemp("whole")
            run("longhaul", "train", write_config(root), *sets(*EVERY, *more), ranks=ranks)
            done[more, ranks] = root / "run"
        return done[more, ranks]
    return get


@pytest.fixture
def mirrored(run, store, tmp_path, request):
    """Makes the run of a test. Its mirror's name is the test's."""
    name = re.sub(r"\W+", "-", request.node.name)[-60:].strip("-")

    def make(endpoint=None, patience=None, server=store, server_env=(), folder="one"):
        (tmp_path / folder).mkdir()
        return Run(run, server, tmp_path / folder, name, endpoint, patience, server_env)
    return make
