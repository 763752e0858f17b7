"""Training that is killed before or after every change of the disk goes on bitwise."""

import pytest
from faulty_training import Whole, break_and_go_on

CASES = {"one_rank": (1, None, 1), "first_of_two": (2, 0, 3), "second_of_two": (2, 1, 2)}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_at_any_change_goes_on_bitwise(run, binary, tmp_path, case, when):
    ranks, rank, stride = CASES[case]
    whole = Whole(run, binary, tmp_path, ranks, rank)
    assert whole.changes > 30
    killed = 0
    for n in range(1, whole.changes + 1, stride):
        directory = tmp_path / str(n)
        directory.mkdir()
        broken, _ = break_and_go_on(run, binary, directory, whole,
                                    f"nosync;kill:when={when}:n={n}")
        killed += broken.returncode != 0
    # Which calls there are depends a little on the threads' luck.
    assert killed >= 0.8 * whole.changes / stride
