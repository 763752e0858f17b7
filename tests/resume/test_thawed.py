"""State that a checkpoint lacks because of a setting is no damage. Parameters that were frozen go
on as if they had just been made, with the same bits in every layout."""

import json
import shutil

import pytest
from datasets import Dataset
from programs import later
from runs import curve, edit_state, final, state, tensors, write_config

FROZEN = 'optimizer.groups=[{match="embed",frozen=true},{match="layers.0",frozen=true}]'
THAWED = "optimizer.groups="
HALF = "step_00000004"
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 300,
        "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def train(run, path, *sets, ranks=1, check=True):
    result = run("longhaul", "train", path, *[w for s in sets for w in ("--set", s)],
                 ranks=ranks, check=check)
    assert "DAMAGED" not in result.stdout + result.stderr
    return result


def counts(checkpoint):
    text = next(checkpoint.glob("*state.json")).read_text()
    saved = json.loads(text)
    found = {name: group["updates"] for group in saved["fewer_updates"]
             for name in group["parameters"]}
    return saved["updates"], found


def events(run_dir):
    return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def half(run, tmp_path_factory):
    """A run of four steps with a group that is frozen."""
    place = tmp_path_factory.mktemp("half")
    train(run, write_config(place), FROZEN, "run.stop_after=4")
    updates, fewer = counts(place / "run/checkpoints" / HALF)
    assert updates == 4 and set(fewer.values()) == {0}
    assert "model.embed_tokens.weight" in fewer and "model.layers.0.mlp.up_proj.weight" in fewer
    assert not [n for n in fewer if "layers.1" in n or "lm_head" in n]
    return place


def copy_of(half, tmp_path, name="run"):
    """A copy of the run `half` in tmp_path."""
    path = write_config(tmp_path, name)
    shutil.copytree(half / "run", tmp_path / name)
    return path


def test_thawed_parameters_go_on_and_a_resume_in_between_changes_no_bit(run, half, tmp_path):
    whole, parts = copy_of(half, tmp_path), copy_of(half, tmp_path, "parts")
    log = train(run, whole, THAWED).stdout
    assert "thawed: 10 parameters (model.embed_tokens.weight, ...) had no update so far" in log
    assert f"checkpoints/{HALF} (step 4" in log
    train(run, parts, THAWED, "run.stop_after=6")
    updates, fewer = counts(tmp_path / "parts/checkpoints/step_00000006")
    assert updates == 6 and set(fewer.values()) == {2} and len(fewer) == 10
    assert "thawed:" not in train(run, parts, THAWED).stdout
    one, other = final(tmp_path / "run"), final(tmp_path / "parts")
    assert counts(one) == counts(other) == (8, dict.fromkeys(fewer, 4))
    assert tensors(one) == tensors(other) and state(one) == state(other)
    assert curve(tmp_path / "run") == curve(tmp_path / "parts")
    assert not [e for e in events(tmp_path / "run") if e["event"] == "fall_back"]


@pytest.mark.parametrize("ranks,keys", [
    (4, ["parallel.zero=3", "parallel.tp=2"]),
    *later((2, ["parallel.zero=1"]), (2, ["parallel.tp=2"]), (2, ["parallel.pp=2"]))])
def test_every_layout_goes_on_with_the_same_numbers(run, half, tmp_path, ranks, keys):
    fp32 = ['precision.compute="fp32"']
    alone, cut = copy_of(half, tmp_path), copy_of(half, tmp_path, "cut")
    train(run, alone, THAWED, *fp32)
    train(run, cut, THAWED, *fp32, *keys, "run.stop_after=6", ranks=ranks)
    train(run, cut, THAWED, *fp32)  # and back
    for ours, theirs in zip(curve(tmp_path / "cut"), curve(tmp_path / "run"), strict=True):
        assert ours == pytest.approx(theirs, rel=2e-5)
    assert counts(final(tmp_path / "cut")) == counts(final(tmp_path / "run"))


def test_what_is_frozen_later_begins_anew_when_it_is_thawed(run, half, tmp_path):
    path = copy_of(half, tmp_path)
    train(run, path, THAWED, "run.stop_after=6")
    log = train(run, path, 'optimizer.groups=[{match="lm_head",frozen=true}]',
                "run.stop_after=7").stdout
    assert "frozen from here on: 1 parameter (lm_head.weight); the moments are not kept" in log
    assert counts(tmp_path / "run/checkpoints/step_00000007")[1]["lm_head.weight"] == 0
    log = train(run, path, THAWED).stdout
    assert "thawed: 1 parameter (lm_head.weight) had no update so far" in log
    fewer = counts(final(tmp_path / "run"))[1]
    assert fewer["lm_head.weight"] == 1 and fewer["model.embed_tokens.weight"] == 4


def test_an_older_state_is_read_by_what_its_settings_froze(run, half, tmp_path):
    new, old = copy_of(half, tmp_path), copy_of(half, tmp_path, "old")
    for step in (tmp_path / "old/checkpoints").glob("step_*"):
        edit_state(step, lambda content: content.pop("fewer_updates"))
    train(run, new, THAWED)
    train(run, old, THAWED)
    assert tensors(final(tmp_path / "run")) == tensors(final(tmp_path / "old"))


def test_what_an_older_program_did_not_mean_by_a_pattern_is_told_once_it_takes_effect(
        run, tmp_path):
    path = write_config(tmp_path)
    (tmp_path / "model/config.json").write_text(json.dumps(GPT2))
    groups = 'optimizer.groups=[{match="*c_attn.weight",lr_scale=0.5}]'
    train(run, path, groups, "run.stop_after=4")
    edit_state(tmp_path / "run/checkpoints" / HALF, lambda content: content.pop("fewer_updates"))
    told = "is of an older program, whose patterns matched only longhaul's own names of parameters"
    log = train(run, path, groups, "run.stop_after=6").stdout
    assert told in log and "also match 6 parameters (" in log
    assert told not in train(run, path, groups).stdout


def test_moments_that_are_missing_without_such_a_setting_are_a_damage(run, half, tmp_path):
    path = copy_of(half, tmp_path)

    def say_that_all_was_trained(content):
        content["fewer_updates"] = []

    edit_state(tmp_path / "run/checkpoints" / HALF, say_that_all_was_trained)
    result = run("longhaul", "train", path, "--set", THAWED, check=False)
    assert result.returncode == 78
    assert f"{HALF}: no exp_avg of 'model." in result.stderr


@pytest.mark.parametrize("change,words", [
    ('precision.moments="bf16"', "precision.moments"),
    ('precision.master="bf16_sr"', "precision.master"),
    ('optimizer.kind="lamb"', "optimizer.kind"),
    ('optimizer.convention="hf"', "optimizer.convention")])
def test_a_setting_that_changes_what_is_kept_is_refused_and_nothing_is_lost(
        run, half, tmp_path, change, words):
    path = copy_of(half, tmp_path)
    kept = sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir())
    result = train(run, path, FROZEN, change, check=False)
    assert result.returncode == 78 and words in result.stderr
    assert sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir()) == kept


def test_a_state_of_another_version_is_no_damage(run, half, tmp_path):
    path = copy_of(half, tmp_path)
    train(run, path, FROZEN, "run.stop_after=6")
    edit_state(tmp_path / "run/checkpoints/step_00000006",
               lambda content: content.update(version=99))
    result = train(run, path, FROZEN, check=False)
    assert result.returncode == 78
    assert "version 99, this program reads 2 and 3; use a newer longhaul" in result.stderr
    assert not final(tmp_path / "run").exists()


def test_more_positions_than_the_model_has_are_no_damage_of_the_newest_checkpoint(
        run, half, tmp_path):
    train(run, copy_of(half, tmp_path), FROZEN, "run.stop_after=6")
    Dataset.from_dict({"input_ids": [[7] * 512] * 2}).save_to_disk(tmp_path / "rows")
    result = run("longhaul", "eval", tmp_path / "run", "--data", tmp_path / "rows", "--seq-len",
                 512, check=False)
    assert result.returncode == 78
    assert "512 positions are needed, the model has 256" in result.stderr
    assert "step_00000006" in result.stderr and "damaged" not in result.stderr


def test_a_pattern_without_a_match_is_refused_at_first_and_told_on_a_resume(run, half, tmp_path):
    nothing = 'optimizer.groups=[{match="*c_attn*",frozen=true}]'
    words = 'optimizer.groups: match = "*c_attn*" matches none of the model\'s 21 parameters'
    fresh = write_config(tmp_path, "fresh")
    for verb in ("train", "config"):
        refused = run("longhaul", verb, fresh, "--set", nothing, check=False)
        assert refused.returncode == 78 and words in refused.stderr
        assert "longhaul inspect --names" in refused.stderr
    assert not list((tmp_path / "fresh").glob("checkpoints/*"))
    log = train(run, copy_of(half, tmp_path), nothing, "run.stop_after=5").stdout
    assert words in log
