"""What a run does late is done once before its first step: nothing of it is left, no bit of the run
differs, and what would fail late fails then, by its name."""

import json
import re
import shutil

import pytest
from disks import disk  # noqa: F401
from layouts import FP32, LAYOUTS, MODELS, curve, parallel, step_dir, write_run
from programs import BIN, later
from runs import steps_of

WRONG, TEMPORARY = 78, 75
PARTS = ["collectives", "signal", "last batch", "save", "mirror", "largest step", "load", "validation",
         "export"]
SHORT = ["run.steps=3"]


def rehearse(run, path, *sets, ranks=1, flags=("--rehearse",), env=(), **options):
    return run("longhaul", "train", path, *flags, *[w for s in sets for w in ("--set", s)], ranks=ranks,
               env={"OMP_NUM_THREADS": "1", **dict(env)}, **options)


def told(result):
    """The parts that a log tells of, in their order."""
    return re.findall(r"rehearsal: ([a-z ]+): .*, \d+\.\d s$", result.stdout, re.M)


def leftovers(folder):
    return [path for path in folder.rglob("rehearsal*") if path.name != "rehearsal.toml"]


def saved(run_dir):
    """All bytes of all checkpoints but for what names the start and the time of the save."""
    files = [path for path in sorted(run_dir.glob("checkpoints/step_*/**/*")) if path.is_file()]
    return {path.relative_to(run_dir).as_posix(): path.read_bytes() for path in files
            if path.name != "manifest.json"}


def failed(result, part, *words, code):
    assert result.returncode == code, (result.stdout, result.stderr)
    number = PARTS.index(part) + 1
    assert f"[rehearsal] {part} (part {number} of 9): " in result.stderr, result.stderr
    assert "--no-rehearse starts without the rehearsal" in result.stderr
    for word in words:
        assert word in result.stderr, (word, result.stderr)


DEVICE = ['run.device="plugin"', f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"']
DROPPED = dict(model_type="gpt2", resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
ROUTED = ['experts.balance="global"', "experts.balance_weight=0.05", "experts.z_loss=0.001"]
SAME = {
    "experts_pp2_zero3": (parallel(4, pp=2, zero=3, ep=2), ROUTED, dict(model_type="qwen3_moe")),
    "dropout_tp2_pp2": (LAYOUTS["tp2_pp2"], ["memory.recompute=\"selective\""], DROPPED),
    "one_rank_bf16_sr": (parallel(1), ['precision.master="bf16_sr"', 'precision.moments="bf16"'], {}),
    "lamb_zero2": (LAYOUTS["zero2"], ['optimizer.kind="lamb"'], {}),
    "cp2_dp2_zero3": (LAYOUTS["cp2_dp2_zero3"], [*FP32, "data.document_mask=true"], {}),
    "device_zero3": (LAYOUTS["zero3"], [*FP32, *DEVICE], {}),
}


@pytest.mark.parametrize("name", ["experts_pp2_zero3", "one_rank_bf16_sr",
                                  *later("dropout_tp2_pp2", "lamb_zero2", "cp2_dp2_zero3", "device_zero3")])
def test_a_rehearsed_run_is_bitwise_an_unrehearsed_one(run, store, tmp_path, name):
    (ranks, keys), sets, model = SAME[name]
    path = write_run(tmp_path, store, **model)
    sets = [*keys, *sets, "run.steps=4", "checkpoint.every=2", "validation.every=2", "validation.batches=1",
            f'data.validation=[{{name = "words", path = "{store}"}}]']
    plain = rehearse(run, path, *sets, ranks=ranks, flags=())
    assert "rehearsal" not in plain.stdout + plain.stderr  # so few ranks need the flag
    (tmp_path / "run").rename(tmp_path / "plain")  # the settings in a checkpoint name the directory
    result = rehearse(run, path, *sets, ranks=ranks)
    assert told(result) == PARTS
    assert len(curve(tmp_path / "run")) == 4 and curve(tmp_path / "run") == curve(tmp_path / "plain")
    ours, theirs = saved(tmp_path / "run"), saved(tmp_path / "plain")
    assert len(ours) > 2 * ranks and ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    losses = [[(r["step"], r["loss"]) for r in map(json.loads, (tmp_path / d / "metrics.jsonl").open())
               if "validation" in r] for d in ("run", "plain")]
    assert losses[0] == losses[1] and [step for step, _ in losses[0]] == [0, 2, 4]
    assert leftovers(tmp_path / "run") == []


def test_a_run_that_has_done_a_step_is_not_rehearsed_and_a_killed_rehearsal_is_removed(run, store, tmp_path):
    path = write_run(tmp_path, store)
    result = rehearse(run, path, *SHORT, "run.stop_after=2")
    assert told(result) == PARTS
    seconds = float(re.search(r"rehearsal: all 9 parts went well in (\d+\.\d) s", result.stdout)[1])
    ledger = json.loads(run("longhaul", "report", tmp_path / "run", "--json").stdout)["ledger"]
    assert ledger["by_class"]["restart"] > seconds - 0.1
    assert [p.name for p in (tmp_path / "run/checkpoints").glob("step_*")] == ["step_00000002"]
    identity = json.loads((tmp_path / "run/run.json").read_text())["run"]
    shutil.copytree(step_dir(tmp_path / "run", 2),
                    tmp_path / f"run/checkpoints/rehearsal_{identity}/step_00000009")
    again = rehearse(run, path, *SHORT)
    assert told(again) == [] and "rehearsal: left out, since the run has done steps before" in again.stdout
    assert leftovers(tmp_path / "run") == [] and sorted(steps_of(tmp_path / "run")) == [1, 2, 3]


def test_a_run_cannot_be_told_both(run, store, tmp_path):
    path = write_run(tmp_path, store)
    both = rehearse(run, path, *SHORT, flags=("--rehearse", "--no-rehearse"), check=False)
    assert both.returncode == WRONG and "--rehearse excludes --no-rehearse" in both.stderr, both.stderr


def test_a_full_disk_fails_in_the_save(run, store, tmp_path, disk):  # noqa: F811
    place = disk("512k")
    path = write_run(tmp_path, store)
    sets = [*SHORT, f'checkpoint.dir="{place.path}"']
    result = rehearse(run, path, *sets, check=False)
    failed(result, "save", "No space left on device", "free space", code=TEMPORARY)
    assert leftovers(place.path) == [] and not steps_of(tmp_path / "run")


def test_a_directory_that_takes_no_writes_is_told(run, store, tmp_path, disk):  # noqa: F811
    place = disk("64m")
    place.freeze()
    path = write_run(tmp_path, store)
    result = rehearse(run, path, *SHORT, f'checkpoint.dir="{place.path}"', check=False)
    assert result.returncode == WRONG and "Read-only file system" in result.stderr, result.stderr
    assert not steps_of(tmp_path / "run")


def test_a_rank_that_does_not_answer_is_told_with_its_group(run, store, tmp_path):
    ranks, keys = LAYOUTS["tp2_sequence"]
    result = rehearse(run, write_run(tmp_path, store), *keys, *SHORT, "resilience.comm_timeout_s=2",
                      'debug.delays=[{phase = "gradients", seconds = 60, rank = 1}]', ranks=ranks,
                      check=False)
    failed(result, "collectives", "[comm] ", "phase rehearsal: collectives", "tp", "did not end within 2.0 s",
           code=TEMPORARY)
    assert leftovers(tmp_path / "run") == []


def test_a_validation_longer_than_the_model_is_told(run, store, tmp_path):
    path = write_run(tmp_path, store)
    result = rehearse(run, path, *SHORT, "data.seq_len=128",
                      f'data.validation=[{{name = "words", path = "{store}"}}]', check=False)
    assert result.returncode == WRONG
    assert "data.seq_len = 128 is above max_position_embeddings = 64" in result.stderr, result.stderr


def test_a_device_with_too_little_memory_fails_in_the_largest_step(run, store, tmp_path):
    result = rehearse(run, write_run(tmp_path, store), *FP32, *DEVICE, *SHORT, "batch.micro_size=8",
                      env={"SOFTDEV_MEMORY": str(10 << 20)}, check=False)
    failed(result, "largest step", "device 0 is out of memory", "of 10485760 taken",
           code=1)  # the kind that this device's library gives it
    assert leftovers(tmp_path / "run") == []


def test_a_run_without_a_tokenizer_is_told(run, store, tmp_path):
    path = write_run(tmp_path, store)
    synthetic = "data.train=[{synthetic = 100}]"
    result = rehearse(run, path, *SHORT, synthetic)
    assert "rehearsal: an export of this run has no tokenizer" in result.stdout + result.stderr
    result = rehearse(run, path, *SHORT, synthetic, 'log.prompts=["a"]', check=False)
    assert result.returncode == WRONG and "log.prompts: no tokenizer.json" in result.stderr, result.stderr
