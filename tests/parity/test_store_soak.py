"""Fifty kills at random moments of one build, alone and by three processes."""

import os
import random
import signal
import subprocess
import time

import pytest
from test_store import VOCABULARY, contents, write_ids

KILLS = 50


@pytest.mark.parametrize("processes", [1, 3])
def test_killed_fifty_times_it_ends_with_the_same_bytes(run, binary, tmp_path, processes):
    source = write_ids(tmp_path / "rows.jsonl", 60_000)
    words = ["data", "build", source, "--field", "input_ids", "--vocab-size", VOCABULARY,
             "--part-size", "100KB", "--holdout", "10%", "--drop-duplicates", "--threads", 1]
    command = [binary("longhaul"), *map(str, words)]
    begin = time.monotonic()
    run("longhaul", *words, "--out", tmp_path / "whole")
    seconds = time.monotonic() - begin
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    killed = 0
    starts = 0
    while killed < KILLS and starts < 20 * KILLS:
        starts += 1
        children = []
        for process in range(processes):
            environment = dict(os.environ)
            if processes > 1:
                environment.update(OMPI_COMM_WORLD_RANK=str(process),
                                   OMPI_COMM_WORLD_SIZE=str(processes))
            children.append(subprocess.Popen([*command, "--out", tmp_path / "store"],
                                             env=environment, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.PIPE, text=True))
        time.sleep(generator.uniform(0.0, 0.3 * seconds))
        for child in children:
            child.send_signal(signal.SIGKILL)
        for child in children:
            _, errors = child.communicate(timeout=60)
            assert child.returncode in (0, 75, -signal.SIGKILL), (seed, errors)
        killed += any(child.returncode == -signal.SIGKILL for child in children)
        if all(child.returncode == 0 for child in children):
            # The build has come to its end between kills: its stores are compared, and it begins
            # anew.
            assert contents(tmp_path / "store") == contents(tmp_path / "whole"), seed
            subprocess.run(["rm", "-r", tmp_path / "store", tmp_path / "store-val"], check=True)
    assert killed == KILLS
    run("longhaul", *words, "--out", tmp_path / "store")
    for side in ("", "-val"):
        assert contents(tmp_path / f"store{side}") == contents(tmp_path / f"whole{side}"), seed
    assert not (tmp_path / "store.building").exists()
