"""Which directory writes a mirror when a run goes on in several: only one, and none that the run
has left."""

import shutil

import pytest
from fault_proxy import FaultProxy, Rule
from mirrored_run import EVERY, sets, wait_for
from runs import steps_of

LEFT = "of which this directory of checkpoints does not know"


def two_places(mine):
    """The run's directory has step 2, and the mirror 4 and 6 of its copy, which lies in `there`."""
    there, left = mine.folder / "there", mine.folder / "left"
    mine.train("run.stop_after=2")
    shutil.copytree(mine.dir, left, symlinks=True)
    mine.train("run.stop_after=6")
    mine.dir.rename(there)
    left.rename(mine.dir)
    return there


def test_a_directory_that_the_run_has_left_never_takes_the_mirror_back(mirrored):
    """The number of starts in that directory does not matter. A start there that fetches from the
    mirror may take it back."""
    mine = mirrored()
    there = two_places(mine)
    before = mine.store.sizes(f"{mine.name}/step_00000006/")
    for step in (4, 5):
        result = mine.train(f"run.stop_after={step}")
        assert "The newest there is step 6 (checkpoint.resume = 6 goes on from it)" in result.stdout
        assert "MIRROR FAILED" in result.stdout and LEFT in result.stdout, result.stdout
        assert mine.mirrored()[-1] == 6
    assert mine.store.sizes(f"{mine.name}/step_00000006/") == before
    result = mine.train("checkpoint.resume=6")
    assert mine.resumed_at(result) == 6 and "MIRROR FAILED" not in result.stdout, result.stdout
    assert mine.mirrored()[-1] == 8
    # From here on the other directory is the one that the run has left.
    mine.dir.rename(mine.folder / "left")
    there.rename(mine.dir)
    assert LEFT in mine.train().stdout


@pytest.mark.soak
def test_a_start_that_is_killed_while_it_fetches_has_not_taken_the_mirror_back(store, mirrored):
    with FaultProxy(store.endpoint) as proxy:
        mine = mirrored(endpoint=proxy.endpoint)
        two_places(mine)
        proxy.rules = [Rule("slow", methods=("GET",), keys="step_00000006/.*safetensors",
                            seconds=600)]
        process = mine.start("checkpoint.resume=6")
        wait_for(lambda: proxy.faults(), process)
        process.kill()
        process.wait()
        proxy.rules = []
        assert LEFT in mine.train("run.stop_after=4").stdout
        assert mine.mirrored()[-1] == 6
        assert mine.resumed_at(mine.train("checkpoint.resume=6")) == 6
        assert not list((mine.dir / "checkpoints").glob(".fetched_*"))


@pytest.mark.soak
def test_a_mirror_whose_writers_name_is_deleted_is_that_of_the_next_start(mirrored):
    """The message of the refusal says to delete the name. Then the checkpoints that later starts in
    the other directory have saved are gone."""
    mine = mirrored()
    two_places(mine)
    mine.store.put(f"{mine.name}/of_run.json", b"half {")
    result = mine.train("run.stop_after=3")
    assert "MIRROR FAILED" in result.stdout and "delete it: the steps of the mirror stay" in result.stdout
    mine.store.remove(f"{mine.name}/of_run.json")
    assert "MIRROR FAILED" not in mine.train("run.stop_after=4").stdout
    mine.lose()
    assert mine.resumed_at(mine.train()) == 4


def test_machines_with_directories_of_their_own_and_shared_checkpoints_count_starts_together(mirrored):
    mine = mirrored()
    mine.sets.append(f'checkpoint.dir="{mine.folder / "checkpoints"}"')
    numbers = []
    for machine, last in (("a", 2), ("b", 4), ("a", 6)):
        result = mine.train(f'run.dir="{mine.folder / machine}"', f"run.stop_after={last}")
        assert "MIRROR FAILED" not in result.stdout, result.stdout
        numbers.append(steps_of(mine.folder / machine)[last]["attempt"])
        assert mine.mirrored()[-1] == last
    assert numbers == [1, 2, 3]


@pytest.mark.soak
def test_a_run_whose_checkpoints_get_another_place_goes_on_from_its_own_newest(mirrored):
    mine = mirrored()
    mine.train("run.stop_after=2")
    mine.run("longhaul", "train", mine.config, *sets(*EVERY, "run.stop_after=4"))
    result = mine.train(f'checkpoint.dir="{mine.folder / "new"}"',
                        f'checkpoint.resume="{mine.dir / "checkpoints"}"')
    assert mine.resumed_at(result) == 4 and "MISSING" not in result.stdout, result.stdout
    assert "MIRROR FAILED" not in result.stdout and mine.mirrored()[-1] == 8, result.stdout


@pytest.mark.soak
def test_a_run_that_begins_anew_because_its_checkpoints_are_lost_takes_its_mirror(mirrored):
    mine = mirrored()
    mine.train("run.stop_after=4")
    shutil.rmtree(mine.dir / "checkpoints")
    result = mine.train('checkpoint.resume="never"', "run.stop_after=2")
    assert mine.resumed_at(result) == 0 and "MIRROR FAILED" not in result.stdout, result.stdout
    assert mine.mirrored() == [2]


def test_a_directory_that_was_put_back_from_a_backup_is_told_what_the_mirror_has(mirrored):
    """The directory's run.json says that a newer step was committed there, so the mirror's step is
    taken."""
    mine = mirrored()
    mine.train("run.stop_after=4")
    shutil.copytree(mine.dir / "checkpoints", mine.folder / "backup")
    mine.train("run.stop_after=6")
    shutil.rmtree(mine.dir / "checkpoints")
    (mine.folder / "backup").rename(mine.dir / "checkpoints")
    result = mine.train()
    assert "had committed step 6, and the newest in" in result.stdout
    assert "is step 4; s3://corpus/" in result.stdout and "has step 6, which is taken" in result.stdout
    assert mine.resumed_at(result) == 6 and "MISSING" not in result.stdout
    assert "MIRROR FAILED" not in result.stdout and mine.mirrored()[-1] == 8
    # A mirror that does not answer delays nothing.
    shutil.rmtree(mine.last())
    mine.env.update(AWS_ENDPOINT_URL_S3="http://127.0.0.1:9", LONGHAUL_OBJECTS_PATIENCE="1")
    result = mine.train()
    assert "cannot be read" in result.stdout and mine.resumed_at(result) == 6, result.stdout
