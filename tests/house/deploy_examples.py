"""Values in place of every FILL_IN of deploy/, and the templates filled with them."""

import importlib.util
import pathlib
import re
import tempfile

import house

DEPLOY = house.ROOT / "deploy"
HASH = "0123456789abcdef" * 4
EXAMPLES = {
    "parallelcluster": {
        "REGION": "us-east-1", "HEAD_SUBNET": "subnet-0123456789abcdef0",
        "COMPUTE_SUBNET": "subnet-0123456789abcdef1", "SSH_KEY": "ann",
        "SSH_FROM": "192.0.2.0/24", "BUCKET": "ann-longhaul",
        "TREE": f"longhaul-{HASH}.tar.gz",
    },
    "hyperpod": {
        "BUCKET": "sagemaker-ann", "ROLE": "arn:aws:iam::123456789012:role/hyperpod-node",
        "SUBNET": "subnet-0123456789abcdef1", "SECURITY_GROUP": "sg-0123456789abcdef0",
        "NODES": "4", "FSX_DNS": "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
        "FSX_MOUNT": "abcdefgh",
    },
    "kubernetes": {
        "NAMESPACE": "training", "STORAGE_CLASS": "fsx-lustre",
        "IMAGE": f"registry.example/longhaul@sha256:{HASH}",
    },
}
TEMPLATES = {"parallelcluster": "cluster.yaml.in", "hyperpod": "create-cluster.json.in",
             "kubernetes": "mpijob.yaml.in"}


def load_render():
    spec = importlib.util.spec_from_file_location("render", DEPLOY / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


render = load_render()


def parameters(kind, **changes):
    """The kind's parameters.env as text, its open places filled, `changes` applied."""
    text = (DEPLOY / kind / "parameters.env").read_text(encoding="utf-8")
    for name, value in {**EXAMPLES[kind], **changes}.items():
        text, count = re.subn(rf"^{name} =.*$", lambda _: f"{name} = {value}", text, flags=re.M)
        if count != 1:
            raise KeyError(f"{kind}/parameters.env sets {name} {count} times")
    return text


def filled(kind, **changes):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "parameters.env"
        path.write_text(parameters(kind, **changes), encoding="utf-8")
        return render.render(DEPLOY / kind / TEMPLATES[kind], path)
