"""docs/running.md: the commands that need no cluster do what the page says."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "resume"))
from runs import write_config  # noqa: E402

PAGE = (SOURCE / "docs" / "running.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run.toml whose run lies in ./run."""
    path = tmp_path_factory.mktemp("running")
    write_config(path)
    return path


def shell(text, folder, binary):
    path = f"{pathlib.Path(binary('longhaul')).parent}:{os.environ['PATH']}"
    environment = dict(os.environ, PATH=path, OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, text=True,
                          capture_output=True, env=environment, timeout=120)


def test_the_commands_for_one_machine_run_as_they_stand(folder, binary):
    assert len(BLOCKS) == 2
    first = shell(BLOCKS[0], folder, binary)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "finished step 4 of 4" in first.stdout
    assert "finished step 8 of 8" in first.stdout
    second = shell(BLOCKS[1], folder, binary)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "STOP" in second.stdout


def test_verbs_and_their_options_in_it_exist(run):
    """A verb that the program says is still to come may be named, its options cannot be checked."""
    help_text, checked = run("longhaul", "--help").stdout, 0
    for line in re.findall(r"(?:^\$ |^|`)longhaul ([a-z].*?)(?:`|#|$)", PAGE, re.M):
        verb = line.split()[0]
        if verb == "rank":
            continue
        if not re.search(rf"^  {verb}\b", help_text, re.M):
            refusal = run("longhaul", verb, check=False)
            assert "not available yet" in refusal.stderr, f"no verb {verb}"
            continue
        options = run("longhaul", verb, "--help").stdout
        for option in re.findall(r"(?<=\s)(--[a-z][a-z-]*)", line.split(" -- ")[0]):
            assert option in options, f"longhaul {verb} has no {option}"
            checked += 1
    assert checked >= 2


def test_keys_that_it_names_exist(run):
    import json

    keys = {item["key"] for item in json.loads(run("longhaul", "config", "--json").stdout)}
    named = set(re.findall(r"`((?:resilience|checkpoint|run|log)\.[a-z_]+)", PAGE)) - {"run.toml"}
    assert len(named) >= 4
    assert not named - keys
