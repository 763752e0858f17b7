"""Training that is killed at a change of the disk goes on bitwise."""

import pytest
from faulty_training import Whole, break_and_go_on

# Number of ranks, the rank that is killed, and the share of its changes before the kill.
CASES = {"one_early": (1, None, 0.3), "one_late": (1, None, 0.9), "first_of_two": (2, 0, 0.6),
         "second_of_two": (2, 1, 0.8)}


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_while_it_saves_goes_on_bitwise(run, binary, tmp_path, case):
    ranks, rank, part = CASES[case]
    whole = Whole(run, binary, tmp_path, ranks, rank)
    n = int(whole.changes * part)
    broken, _ = break_and_go_on(run, binary, tmp_path, whole, f"nosync;kill:n={n}")
    assert broken.returncode != 0
