"""On disks that are full or take no writes, nothing is half written and nothing is lost."""

from disks import disk  # noqa: F401
from refusals import TEMPORARY, contents, refused, refused_without_a_trace, training_refused
from runs import curve

FULL = ("disk", "No space left on device", "free space", "run the same command again")
READ_ONLY = ("disk", "Read-only file system", "choose a place that can be written")


def test_a_store_on_a_full_disk_leaves_nothing(run, root, disk):
    place = disk("16k")
    arguments = ["data", "build", "corpus/*", "--tokenizer", "models/small", "--out", "disk/d",
                 "--holdout", "20%"]
    refused_without_a_trace(run, root, arguments, *FULL, code=TEMPORARY)
    place.grow("8m")
    run("longhaul", *arguments, cwd=root)
    run("longhaul", "verify", "disk/d", cwd=root)


def test_an_export_on_a_full_disk_leaves_nothing(run, root, disk):
    place = disk("200k")
    arguments = ["export", "models/small", "--out", "disk/hf"]
    refused_without_a_trace(run, root, arguments, *FULL, code=TEMPORARY)
    place.grow("8m")
    run("longhaul", *arguments, cwd=root)
    assert "NOT" not in run("longhaul", "inspect", "disk/hf", cwd=root).stdout


def test_a_run_on_a_full_disk_keeps_its_checkpoints_and_goes_on_later(run, root, disk):
    place = disk("4m")
    sets = ["--set", "checkpoint.every=2", "--set", "checkpoint.keep=0", "--set",
            "run.steps=12", "--set", "run.dir=\"disk/run\""]
    result = run("longhaul", "train", "run.toml", *sets, check=False, cwd=root)
    # The file that could not be written is a checkpoint or the metrics, whichever came first.
    refused(result, *FULL, code=TEMPORARY)
    kept = sorted(p.name for p in (root / "disk/run/checkpoints").glob("step_*"))
    assert kept and len(kept) < 6
    for name in kept:  # no half-written directory among them
        run("longhaul", "verify", root / "disk/run/checkpoints" / name)
    place.grow("32m")
    run("longhaul", "train", "run.toml", *sets, cwd=root)
    run("longhaul", "train", "run.toml", *sets, "--set", 'run.dir="whole"', cwd=root)
    assert curve(root / "disk/run") == curve(root / "whole")
    assert len(curve(root / "whole")) == 12


def test_a_read_only_disk(run, root, disk):
    place = disk("1m")
    place.freeze()
    training_refused(run, root, ['run.dir="disk/run"'], *READ_ONLY)
    for arguments in (["export", "models/small", "--out", "disk/hf"],
                      ["data", "build", "corpus/*", "--tokenizer", "models/small", "--out",
                       "disk/d"],
                      ["data", "build", "corpus/*", "--tokenizer", "models/small", "--out",
                       "disk/deeper/d"],
                      ["data", "train-tokenizer", "corpus/*", "--out", "disk/t",
                       "--vocab-size", "300"]):
        refused_without_a_trace(run, root, arguments, *READ_ONLY)


def test_a_run_whose_disk_became_read_only_loses_nothing(run, root, disk):
    place = disk("8m")
    sets = ["--set", "run.dir=\"disk/run\"", "--set", "checkpoint.every=2", "--set",
            "run.steps=6"]
    run("longhaul", "train", "run.toml", *sets, "--set", "run.stop_after=4", cwd=root)
    before = contents(root / "disk/run")
    place.freeze("8m")
    result = run("longhaul", "train", "run.toml", *sets, check=False, cwd=root)
    refused(result, *READ_ONLY, code=TEMPORARY)
    assert contents(root / "disk/run") == before
