"""Training that is killed at a change of the disk goes on bitwise."""

import pytest
from faulty_training import Whole, break_and_go_on

CASES = {"one_rank": (1, None), "first_of_two": (2, 0), "second_of_two": (2, 1)}


@pytest.fixture(scope="module", params=CASES)
def whole(request, run, binary, tmp_path_factory):
    return Whole(run, binary, tmp_path_factory.mktemp("whole"), *CASES[request.param])


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_run_killed_while_it_saves_goes_on_bitwise(run, binary, tmp_path, whole, part):
    if whole.ranks > 1 and part != 0.6:
        pytest.skip("left to the long suite")
    n = int(whole.changes * part)
    broken, _ = break_and_go_on(run, binary, tmp_path, whole, f"nosync;kill:n={n}")
    assert broken.returncode != 0
