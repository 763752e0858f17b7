"""What `longhaul config --ranks` counts of a layout is what `longhaul train` holds."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "resume"))
import runs  # noqa: E402

UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
LINE = re.compile(r"model ([\d,]+) parameters .*?, ([\d.]+) (\w+) of weights and gradients, "
                  r"([\d.]+) (\w+) of optimizer state per rank")


@pytest.mark.parametrize("ranks, sets", [
    (1, []),
    (2, ["parallel.zero=2", "precision.compute=bf16", "precision.moments=bf16"]),
    (2, ["parallel.zero=3", "precision.compute=bf16"]),
    (2, ["parallel.tp=2", "parallel.sequence=true", "precision.gradients=bf16"]),
    (2, ["parallel.pp=2", "parallel.zero=0"]),
])
def test_bytes_of_a_rank_are_those_that_train_allocates(run, binary, tmp_path, ranks, sets):
    config = runs.write_config(tmp_path, "counted")
    words = [word for one in ["run.steps=4", *sets] for word in ("--set", one)]
    said = subprocess.run([binary("longhaul"), "config", config, "--ranks", str(ranks), "--json",
                           *words], capture_output=True, text=True, check=True, timeout=60)
    first = json.loads(said.stdout)["layout"]["ranks"][0]
    run("longhaul", "train", config, *words, ranks=ranks)
    _, buffers, buffer_unit, state, state_unit = LINE.search(
        (tmp_path / "counted" / "log.txt").read_text()).groups()
    for counted, held, unit in [
            (first["weight_bytes"] + first["gradient_bytes"], buffers, buffer_unit),
            (first["master_bytes"] + first["moment_bytes"], state, state_unit)]:
        assert f"{counted / UNITS[unit]:.1f}" == held, (first, held, unit)
