"""A pipe in a file's place: refused, and not waited for."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import MODEL  # noqa: E402


@pytest.mark.parametrize("verb,name", [("inspect", "config.json"), ("inspect", "manifest.json"),
                                       ("verify", "manifest.json"), ("inspect", "store.json"),
                                       ("inspect", "model.safetensors.index.json")])
def test_a_pipe_is_refused_by_name(binary, tmp_path, verb, name):
    place = tmp_path / ("step_00000004" if name == "manifest.json" else "place")
    place.mkdir()
    if name.startswith("model"):
        (place / "config.json").write_text(json.dumps(MODEL))
    os.mkfifo(place / name)
    done = subprocess.run([binary("longhaul"), verb, place], timeout=60, text=True,
                          capture_output=True)
    assert done.returncode == 78, done.stdout + done.stderr
    assert f"{name}: is a pipe" in done.stdout + done.stderr
