"""A supervised run on the cluster lives through faults with the losses of an undisturbed run."""

import pytest
from faults import Supervised, reference, strike
from runs import curve


@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("fault", ["kill_one_worker", "kill_supervisor"])
def test_the_run_ends_by_itself_with_the_same_losses(cluster, binary, folder, undisturbed, fault):
    supervised = Supervised(cluster, binary, folder)
    seconds = strike(supervised, fault, seed=1)
    supervised.finish()
    print(f"{fault}: {seconds:.1f} s until the next step")
    assert curve(supervised.dir) == undisturbed
    if fault == "kill_supervisor":
        assert "the supervisor ended with 137; starts again" in supervised.log()
    else:
        assert supervised.events("restart"), supervised.tail()
