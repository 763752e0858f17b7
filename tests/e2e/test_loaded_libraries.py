"""A directory with files named like libraries, as an unpacked model may be, is a safe place to work in."""

import subprocess

import pytest
from programs import BIN, plant_libraries


@pytest.mark.parametrize("program", ["longhaul", "longhaul-torch"])
def test_files_named_like_libraries_where_it_is_started_are_not_loaded(program, tmp_path):
    plant_libraries(BIN, tmp_path / "model")
    started = subprocess.run([BIN / program, "--version"], cwd=tmp_path / "model", env={},
                             capture_output=True, text=True, timeout=60)
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("longhaul ")
