"""A pipe in the place of a file is refused without a wait for it. In a name with a terminal's
control characters these are written out."""

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


@pytest.mark.parametrize("verb", ["config", "train"])
def test_a_name_with_control_characters_is_shown_and_not_obeyed(binary, tmp_path, verb):
    """The message shows the name without any control sequence of a terminal, and in one line."""
    name = "no\x1b[2Jwhere\nlonghaul: error: [forged] a.toml"
    done = subprocess.run([binary("longhaul"), verb, name], timeout=60, text=True,
                          capture_output=True, cwd=tmp_path)
    assert done.returncode == 78, done.stderr
    assert "no\\x1b[2Jwhere\\nlonghaul: error: [forged] a.toml: no such file" in done.stderr
    assert "\x1b" not in done.stderr and len(done.stderr.splitlines()) == 1
