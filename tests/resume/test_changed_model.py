"""A resumed run keeps the model of its checkpoint, and says where its data has changed."""

import json

import pytest
from datasets import Dataset
from programs import later
from runs import MODEL, curve, edit_state, tensors, write_config


def train(run, path, *sets, ranks=1, check=True):
    return run("longhaul", "train", path, *[w for s in sets for w in ("--set", s)],
               ranks=ranks, check=check)


def change_model(tmp_path, **fields):
    (tmp_path / "model/config.json").write_text(json.dumps({**MODEL, **fields}))


def kept(tmp_path):
    return sorted(p.name for p in (tmp_path / "run/checkpoints").glob("step_*"))


def refused(result, *words):
    assert result.returncode == 78, (result.stdout, result.stderr)
    for word in words:
        assert word in result.stderr, (word, result.stderr)
    assert "DAMAGED" not in result.stdout + result.stderr


def as_before(step, **changes):
    """Makes a checkpoint look as if an earlier build had written it: fields of state.json have
    other values, or are absent."""
    def change(state):
        state.update(changes)
        for name in [n for n, value in state.items() if value is None]:
            del state[name]
    edit_state(step, change)


@pytest.mark.parametrize("older", [True, *later(False)])
def test_a_changed_model_is_refused_and_the_same_one_goes_on(run, tmp_path, older):
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4", "checkpoint.every=2")
    if older:
        for step in (tmp_path / "run/checkpoints").glob("step_*"):
            as_before(step, model=None)
    steps = kept(tmp_path)
    for changes, words in (
            ({"rope_theta": 20000.0}, ["rope_theta is 20000, was 10000"]),
            ({"rms_norm_eps": 1e-6, "eos_token_id": 7},
             ["rms_norm_eps is 1e-06, was 1e-05", "eos_token_id is 7, was absent"]),
            ({"hidden_size": 32, "num_hidden_layers": 1},
             ["hidden_size is 32, was 64", "num_hidden_layers is 1, was 2"])):
        change_model(tmp_path, **changes)
        refused(train(run, path, check=False), "[model]", str(tmp_path / "model/config.json"),
                "step_00000004", *words)
        assert kept(tmp_path) == steps
    change_model(tmp_path)
    train(run, path, "run.stop_after=5")
    assert len(curve(tmp_path / "run")) == 5


def padding_row(tmp_path, step):
    folder = tmp_path / f"run/checkpoints/step_{step:08}"
    return json.loads(next(folder.glob("*state.json")).read_text())["padding_row"]


def test_a_run_that_was_begun_with_a_trained_padding_row_goes_on_so(run, tmp_path):
    (tmp_path / "plain").mkdir()
    train(run, write_config(tmp_path / "plain"))
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4")
    # Earlier builds treated pad_token_id like any other token, and recorded nothing about it.
    step = tmp_path / "run/checkpoints/step_00000004"
    as_before(step, padding_row=None, model=json.dumps({**MODEL, "pad_token_id": 7}))
    change_model(tmp_path, pad_token_id=7)
    line = ("row 7 of the embedding, which is pad_token_id's row, is trained like the others, "
            "because this run began that way")
    assert line in train(run, path, "run.stop_after=6", "checkpoint.every=2").stdout
    assert line in train(run, path).stdout
    assert curve(tmp_path / "run") == curve(tmp_path / "plain/run")
    assert padding_row(tmp_path, 6) is None and padding_row(tmp_path, 8) is None


def test_a_new_run_does_not_train_its_padding_row_and_records_it(run, tmp_path):
    path = write_config(tmp_path)
    change_model(tmp_path, pad_token_id=7)
    line = "pad_token_id: look-ups of row 7 of the embedding are not trained, as in transformers"
    assert line in train(run, path, "run.stop_after=4").stdout
    assert padding_row(tmp_path, 4) == 7
    change_model(tmp_path, pad_token_id=8)
    refused(train(run, path, check=False), "pad_token_id is 8, was 7")
    change_model(tmp_path, pad_token_id=7 - MODEL["vocab_size"])  # the same row
    told = train(run, path).stdout
    assert line not in told and "trained like others" not in told
    assert padding_row(tmp_path, 8) == 7
    name = "model.embed_tokens.weight"
    moments = [value for (_, key), value in tensors(tmp_path / "run/checkpoints/step_00000008").items()
               if name in key and "exp_avg" in key]
    width = MODEL["hidden_size"] * 4
    assert len(moments) == 2 and not any(any(m[7 * width:8 * width]) for m in moments)


def test_a_padding_token_that_is_none_is_refused_for_a_new_run(run, tmp_path):
    path = write_config(tmp_path)
    change_model(tmp_path, pad_token_id=300)
    refused(train(run, path, check=False), "pad_token_id = 300 names no row",
            "vocab_size = 300", "model.override.pad_token_id")
    assert "pad_token_id = 300 names no row" in run("longhaul", "config", path).stderr
    # A run goes on if an earlier build has trained it with this model.
    change_model(tmp_path)
    train(run, path, "run.stop_after=4")
    as_before(tmp_path / "run/checkpoints/step_00000004", padding_row=None,
              model=json.dumps({**MODEL, "pad_token_id": 300}))
    change_model(tmp_path, pad_token_id=300)
    train(run, path, "run.stop_after=5")
    assert len(curve(tmp_path / "run")) == 5


def test_a_run_whose_config_was_read_as_another_model_goes_on_by_an_override(run, tmp_path):
    """An earlier build ignored is_causal, and its checkpoints contain the text of that config."""
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4")
    as_before(tmp_path / "run/checkpoints/step_00000004",
              model=json.dumps({**MODEL, "is_causal": False}))
    change_model(tmp_path, is_causal=False)
    refused(train(run, path, check=False), "is_causal = false", "model.override.is_causal = true")
    train(run, path, "model.override={is_causal=true}", "run.stop_after=8")
    assert len(curve(tmp_path / "run")) == 8


def test_a_random_start_from_zeros_is_refused(run, tmp_path):
    path = write_config(tmp_path)
    change_model(tmp_path, initializer_range=0.0)
    refused(train(run, path, check=False), "initializer_range = 0", "embed_tokens.weight")
    train(run, path, "model.override={initializer_range=0.02}", "run.stop_after=1")


def test_a_checkpoint_of_another_run_must_be_of_the_same_model(run, tmp_path):
    train(run, write_config(tmp_path, "first"), "run.stop_after=2")
    change_model(tmp_path, rope_theta=20000.0)
    path = tmp_path / "second.toml"
    path.write_text((tmp_path / "first.toml").read_text().replace("/first", "/second"))
    refused(train(run, path, f'checkpoint.resume="{tmp_path}/first"', check=False),
            "rope_theta is 20000, was 10000")
    # The checkpoint of another model may be taken for the weights alone, if a setting says so.
    weights = f'init.weights="{tmp_path}/first"'
    refused(train(run, path, weights, "run.stop_after=1", check=False),
            "rope_theta (20000 in the run, 10000 beside the weights)")
    change_model(tmp_path, rope_theta=20000.0, eos_token_id=7)
    told = train(run, path, weights, "init.certificate=false", "run.stop_after=1").stdout
    for field in ("rope_theta (20000 in the run, 10000 beside the weights)",
                  "eos_token_id (7 in the run, absent beside the weights)"):
        assert f"the run's config.json differs from the one beside the weights: {field}" in told


def saved(path, factor):
    ids = [[(i * factor + j) % 300 for j in range(32)] for i in range(90)]
    Dataset.from_dict({"input_ids": ids}).save_to_disk(path)


def test_other_data_at_the_same_path_is_a_warning_with_both_fingerprints(run, tmp_path):
    lines = tmp_path / "ids.jsonl"
    data = f'data.train=[{{ path = "{tmp_path}/store" }}]'
    path = write_config(tmp_path)
    prints = []
    for factor, last in ((7, 2), (11, 4), (11, 6)):
        lines.write_text("".join(json.dumps({"input_ids": [(i * factor + j) % 300
                                                           for j in range(32)]}) + "\n"
                                 for i in range(90)))
        run("longhaul", "data", "build", lines, "--field", "input_ids", "--vocab-size", 300,
            "--out", tmp_path / "store", "--force")
        prints.append(json.loads((tmp_path / "store/store.json").read_text())["fingerprint"])
        told = train(run, path, data, f"run.stop_after={last}").stdout
        warning = (f"DATA CHANGED: {tmp_path}/store holds other data than before: its "
                   f"fingerprint was {prints[0]} (89 sequences), is {prints[-1]} "
                   "(89 sequences)")
        assert (warning in told) == (last == 4), told
    assert prints[0] != prints[1] == prints[2]


def test_how_much_of_a_validation_set_is_read_is_said_at_the_start(run, tmp_path):
    saved(tmp_path / "held", 7)
    sets = f'data.validation=[{{ name = "held", path = "{tmp_path}/held" }}]'
    path = write_config(tmp_path)
    told = train(run, path, sets, "validation.batches=2", "run.stop_after=1").stdout
    assert ("validation data held: the first 16 of 90 sequences are read (17.8%): "
            "validation.batches = 2 of batch.global_size = 8; validation.batches = 0 reads all"
            ) in told
    told = train(run, path, sets, "validation.batches=0", "run.stop_after=2").stdout
    assert "validation data held: all 90 sequences are read" in told
