import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", SOURCE / "build" / "bin"))


@pytest.fixture(scope="session")
def run():
    """Runs a program of the build; returns the completed process."""

    def call(program, *arguments, check=True, **options):
        result = subprocess.run(
            [str(BIN / program), *map(str, arguments)],
            capture_output=True, text=True, timeout=300, **options,
        )
        if check and result.returncode != 0:
            raise AssertionError(
                f"{program} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
            )
        return result

    return call
