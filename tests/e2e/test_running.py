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
    """The blocks run one after another in one directory: each goes on from where the last one
    ended."""
    expected = [["finished step 4 of 8", "finished step 8 of 8"], ["finished step 12 of 12"],
                ["rehearsal: all 9 parts went well in ", "finished step 2 of 8"]]
    assert len(BLOCKS) == len(expected)
    for block, lines in zip(BLOCKS, expected):
        done = shell(block, folder, binary)
        assert done.returncode == 0, block + done.stdout + done.stderr
        for line in lines:
            assert line in done.stdout + done.stderr


def named_verbs():
    """verb -> its options, as the page writes them."""
    found = {}
    for line in re.findall(r"(?:^\$ |^|`)longhaul ([a-z].*?)(?:`|#|$)", PAGE, re.M):
        # The options of a verb behind -- are not options of the verb before it.
        own = line.split(" -- ")[0]
        verb = " ".join(line.split()[:2 if line.startswith("data ") else 1])
        found.setdefault(verb, set()).update(
            re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", own))
    found.pop("rank")  # of a process title
    return found


def test_verbs_and_their_options_in_it_exist(run):
    """The page may name a verb that the program announces for later; its options are not
    checked."""
    verbs = named_verbs()
    assert len(verbs) >= 6
    listed = run("longhaul", "--help").stdout
    for verb, options in verbs.items():
        if not re.search(rf"^  {verb.split()[0]}\b", listed, re.M):
            assert "not available yet" in run("longhaul", verb, check=False).stderr, verb
        elif options:
            described = run("longhaul", *verb.split(), "--help").stdout
            assert not {option for option in options if option not in described}, verb


def test_keys_that_it_names_exist(run):
    import json

    keys = {item["key"] for item in json.loads(run("longhaul", "config", "--json").stdout)}
    named = set(re.findall(r"`((?:resilience|checkpoint|run|log)\.[a-z_]+)", PAGE)) - {"run.toml", "run.json"}
    assert len(named) >= 4
    assert not named - keys
