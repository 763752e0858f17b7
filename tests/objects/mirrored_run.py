"""A run with a mirror, which tests train, kill and lose."""

import json
import re
import shutil
import subprocess
import time

from programs import command_of
from runs import state, steps_of, tensors, write_config
from servers import environment

STEPS = 8  # of runs.write_config
EVERY = ["checkpoint.every=2"]


def sets(*words):
    return [word for one in words for word in ("--set", one)]


def differing(one, other):
    """The names of tensors that differ. (pytest would take minutes to show how two long lists
    differ.)"""
    mine, theirs = tensors(one), tensors(other)
    return [name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)]


class Run:
    """A run with its mirror. A test may lose the run's directory at any time."""

    def __init__(self, run, store, folder, name, endpoint=None, patience=None, server_env=()):
        self.run, self.store, self.folder, self.name = run, store, folder, name
        self.config = write_config(folder)
        self.dir = folder / "run"
        self.env = {**environment(folder / "home", endpoint or store.endpoint, patience=patience),
                    **dict(server_env)}
        self.sets = [*EVERY, f'checkpoint.mirror="s3://corpus/{name}"']
        store.remove_all(f"{name}/")

    def train(self, *more, check=True, ranks=1, nodes=1, timeout=600):
        return self.run("longhaul", "train", self.config, *sets(*self.sets, *more), env=self.env,
                        check=check, ranks=ranks, nodes=nodes, timeout=timeout)

    def start(self, *more, ranks=1):
        command, environment_of_ranks = command_of(
            "longhaul", ["train", self.config, *sets(*self.sets, *more)], ranks)
        return subprocess.Popen(command, env={**environment_of_ranks, **self.env},
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def lose(self):
        shutil.rmtree(self.dir)

    def keys(self):
        return [key.removeprefix(self.name + "/") for key in self.store.keys(self.name + "/")]

    def mirrored(self):
        """The steps for which the mirror has a manifest."""
        found = (re.match(r"step_(\d+)/manifest\.a\d+\.json$", key) for key in self.keys())
        return sorted({int(match[1]) for match in found if match})

    def events(self, kind):
        lines = (self.dir / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def resumed_at(self, result):
        """The step at which a start went on; 0 for one that began anew."""
        found = re.search(r"^weights, moments and data position: .*step_(\d+) ", result.stdout,
                          re.M)
        return int(found[1]) if found else 0

    def last(self, step=STEPS):
        return self.dir / "checkpoints" / f"step_{step:08}"

    def ends_as(self, whole, after):
        """Expects on the disk what an undisturbed run has. Steps up to the one that was fetched may
        be missing in the metrics, since a killed run may not have sent them."""
        mine, theirs = ({step: (record["loss"], record["grad_norm"], record["lr"])
                         for step, record in steps_of(path).items()} for path in (self.dir, whole))
        assert mine.items() <= theirs.items()
        assert set(theirs) - set(mine) <= set(range(2, after + 1))
        last = self.last(max(mine))
        assert differing(last, whole / "checkpoints" / last.name) == []
        assert state(last) == state(whole / "checkpoints" / last.name)


def wait_for(happened, process=None, seconds=600):
    limit = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < limit
        assert process is None or process.poll() is None, "the run ended"
        time.sleep(0.005)
