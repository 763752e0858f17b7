"""A resume goes on with the model of its checkpoint, and data that changed under it is told."""

import json

import pytest
import xxhash
from datasets import Dataset
from runs import MODEL, curve, write_config


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


def as_before_models_were_kept(step):
    """Makes of a checkpoint what an earlier build has written: state.json without the model."""
    manifest = json.loads((step / "manifest.json").read_text())
    state = step / manifest["state"]["name"]
    content = json.loads(state.read_text())
    del content["model"]
    state.write_text(json.dumps(content))

    def hashed(content):
        return xxhash.xxh3_128_hexdigest(content if isinstance(content, bytes) else content.encode())

    manifest["state"].update(size=state.stat().st_size, hash=hashed(hashed(state.read_bytes())))
    del manifest["self"]
    manifest["self"] = hashed(json.dumps(manifest, sort_keys=True, separators=(",", ":")))
    (step / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("older", [False, True])
def test_a_changed_model_is_refused_and_the_same_one_goes_on(run, tmp_path, older):
    path = write_config(tmp_path)
    train(run, path, "run.stop_after=4", "checkpoint.every=2")
    if older:
        for step in (tmp_path / "run/checkpoints").glob("step_*"):
            as_before_models_were_kept(step)
    steps = kept(tmp_path)
    for changes, words in (
            ({"rope_theta": 20000.0}, ["rope_theta is 20000, was 10000"]),
            ({"rms_norm_eps": 1e-6, "eos_token_id": 7},
             ["rms_norm_eps is 1e-06, was 1e-05", "eos_token_id is [7], was []"]),
            ({"hidden_size": 32, "num_hidden_layers": 1},
             ["hidden_size is 32, was 64", "num_hidden_layers is 1, was 2"])):
        change_model(tmp_path, **changes)
        refused(train(run, path, check=False), "[model]", str(tmp_path / "model/config.json"),
                "step_00000004", *words)
        assert kept(tmp_path) == steps
    change_model(tmp_path)
    train(run, path, "run.stop_after=5")
    assert len(curve(tmp_path / "run")) == 5


def test_a_checkpoint_of_another_run_must_be_of_the_same_model(run, tmp_path):
    train(run, write_config(tmp_path, "first"), "run.stop_after=2")
    change_model(tmp_path, rope_theta=20000.0)
    path = tmp_path / "second.toml"
    path.write_text((tmp_path / "first.toml").read_text().replace("/first", "/second"))
    refused(train(run, path, f'checkpoint.resume="{tmp_path}/first"', check=False),
            "rope_theta is 20000, was 10000")
    # Taken for the weights alone it may differ, if somebody says so.
    weights = f'init.weights="{tmp_path}/first"'
    refused(train(run, path, weights, "run.stop_after=1", check=False),
            "rope_theta (20000 in the run, 10000 beside the weights)")
    change_model(tmp_path, rope_theta=20000.0, eos_token_id=7)
    told = train(run, path, weights, "init.certificate=false", "run.stop_after=1").stdout
    for field in ("rope_theta (20000 in the run, 10000 beside the weights)",
                  "eos_token_id ([7] in the run, [] beside the weights)"):
        assert f"config.json is another than beside the weights: {field}" in told


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
