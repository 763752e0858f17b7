"""A loaded model is its source's, or the run stops before, or just after, the first step."""

import json
import re

import pytest
from layouts import DECODERS, FP32, LAYOUTS, curve, step_dir, train, write_run
from programs import later, split

ONE = (1, [])
# Layouts in which a sound model must pass the certificate: every kind of split, and both dtypes.
SOUND = {
    "one": (ONE, FP32),
    "zero0": (LAYOUTS["dp2"], FP32),
    "zero3": (LAYOUTS["zero3"], FP32),
    "tp4_sequence": (LAYOUTS["tp4_sequence"], FP32),
    "tp2_cp2_bf16": (LAYOUTS["tp2_cp2"], []),
    "cp4_gather": (LAYOUTS["cp4_gather"], FP32),
    "interleaved": (LAYOUTS["pp2_interleaved"], FP32),
    "tp2_pp2_bf16": (LAYOUTS["tp2_pp2"], []),
    "hf_decay": (ONE, [*FP32, 'optimizer.convention="hf"', "optimizer.eps=1e-6",
                       'schedule.warmup_start="zero"', 'precision.moments="bf16"']),
    "lamb": (LAYOUTS["tp2_pp2"], [*FP32, 'optimizer.kind="lamb"']),
    "lamb_bf16": (ONE, ['optimizer.kind="lamb"', 'precision.moments="bf16"']),
    "no_masters_bf16": (LAYOUTS["zero1"], ['precision.master="bf16_sr"',
                                           'precision.moments="bf16"']),
}
SOUND_NOW = ["one", "tp2_pp2_bf16", "lamb_bf16"]
# For each fault: the layout in which it is planted, and a pattern of the message.
FAULTS = {
    "swapped_layers": (LAYOUTS["pp2"], r"layer 1 \(.*\), layer 2 give another result"),
    "swapped_gate": (LAYOUTS["zero3"], r"layer 3 \(.*\) gives another result"),
    "wrong_key_head": (LAYOUTS["tp4"], r"layer 1 \(.*\) gives another result"),
    "zeroed_on_last_replica": (LAYOUTS["dp2"], r"input, layer 2 \(.*\), layer 3 give"),
    "permuted_words": (LAYOUTS["tp2_sequence"], r"output projection: a logit differs"),
    "permuted_tokens": (LAYOUTS["tp2_pp2"], r"the embedding \(.*\) gives another result"),
    "rounded_masters": (LAYOUTS["zero1"], r"did not start from .*: the master weight is"),
    "random_masters": (LAYOUTS["zero3"], r"did not start from .*: the master weight is"),
    "stale_moments": (ONE, r"did not start from .*: the master weight is"),
    "trained_padding": (LAYOUTS["zero1"], r"embed_tokens.weight, row 1, which is pad_token_id's row: "
                                          r"its look-ups have a gradient"),
}
FAULTS_NOW = ["wrong_key_head", "permuted_tokens", "stale_moments", "trained_padding"]
AFTER_ONE_UPDATE = {"rounded_masters", "random_masters", "stale_moments", "trained_padding"}
AGREES = re.compile(r"certificate: the loaded model's logits agree with the source's to "
                    r"([\d.e+-]+) \(fixture of (\d+) tokens, logits of (\d+) positions; layer by "
                    r"layer at most ([\d.]+) of what rounding may do; [\d.]+ s\)")
STARTED = re.compile(r"certificate: the first update started from the loaded weights, to "
                     r"([\d.]+) of what rounding may do \(([\d ,.']+) masters looked at\)")


@pytest.fixture(scope="module")
def source(run, trained, tmp_path_factory):
    """A Hugging Face directory of fp32 weights, which bf16 cannot hold."""
    path = tmp_path_factory.mktemp("source") / "hf"
    run("longhaul", "export", trained(ONE, *FP32, "run.stop_after=3"), "--out", path)
    return path


def from_source(run, tmp_path, store, source, layout, *sets, check=True, **model_changes):
    ranks, keys = layout
    return train(run, write_run(tmp_path, store, **model_changes), *keys, *sets,
                 f'init.weights="{source}"', "run.stop_after=1", ranks=ranks, check=check)


@pytest.mark.parametrize("name", split(SOUND, SOUND_NOW))
def test_a_sound_model_gets_its_certificate(run, store, source, tmp_path, name):
    layout, sets = SOUND[name]
    log = from_source(run, tmp_path, store, source, layout, *sets).stdout
    logits, tokens, positions, share = map(float, AGREES.search(log).groups())
    assert (tokens, positions) == (32, 16)
    near = 3e-2 if "bf16" in name else 3e-6
    assert 0 < logits < near and 0 <= share < 0.5  # of two digits behind the point
    assert near == 3e-6 or logits > 1e-4  # rounding is seen, so something is compared
    assert float(STARTED.search(log)[1]) <= 1.0


def test_a_checkpoint_is_a_source_as_well(run, store, trained, tmp_path):
    checkpoint = step_dir(trained(ONE, *FP32, "run.stop_after=3"), 3)
    log = from_source(run, tmp_path, store, checkpoint, LAYOUTS["pp2"], *FP32).stdout
    assert AGREES.search(log) and STARTED.search(log)


@pytest.mark.parametrize("fault", split(FAULTS, FAULTS_NOW))
def test_a_fault_stops_the_run(run, store, source, tmp_path, fault):
    (ranks, keys), message = FAULTS[fault]
    # Masters differ from weights in bf16 only, where the tolerance is the widest as well.
    sets = [*keys, f'init.weights="{source}"']
    words = [w for s in sets for w in ("--set", s)]
    result = run("longhaul_layout_tool", write_run(tmp_path, store), 1, *words, "--fault", fault,
                 ranks=ranks, check=False, env={"OMP_NUM_THREADS": "1"})
    assert result.returncode != 0
    assert re.search(message, result.stderr), result.stderr
    assert ("step" in result.stdout) is False  # nothing was trained, or not recorded
    first = "[certificate] the first update" if fault in AFTER_ONE_UPDATE else "[certificate] the loaded model"
    assert first in result.stderr


@pytest.mark.parametrize("sets", [FP32, []], ids=["fp32", "bf16"])
def test_another_angle_of_rotation_is_named(run, store, source, tmp_path, sets):
    result = from_source(run, tmp_path, store, source, ONE, *sets, check=False,
                         rope_theta=20000.0)
    assert result.returncode == 78
    assert "rope_theta (20000 in the run, 10000 beside the weights)" in result.stderr
    if sets == FP32:  # bf16 hides it in such a small model
        assert "given the same input, layer 0" in result.stderr
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_an_angle_that_is_meant_is_accepted(run, store, source, tmp_path):
    log = from_source(run, tmp_path, store, source, ONE, "model.override={rope_theta=20000.0}",
                      *FP32).stdout
    assert AGREES.search(log)


def test_it_can_be_left_out_and_leaves_no_trace(run, store, source, tmp_path):
    """Without the certificate the wrong model trains. With it a right model trains to the same bits
    as without."""
    wrong = from_source(run, tmp_path / "wrong", store, source, ONE, "init.certificate=false",
                        rope_theta=20000.0)
    assert "certificate" not in wrong.stdout
    for name, sets in (("with", []), ("without", ["init.certificate=false"])):
        from_source(run, tmp_path / name, store, source, LAYOUTS["zero3"], *sets)
    assert curve(tmp_path / "with" / "run") == curve(tmp_path / "without" / "run")


@pytest.mark.parametrize("family,name,changes", [
    ("gpt_neox", "tp2_sequence", {}), ("gemma3_text", "pp2", {}),
    *later(*((family, "tp2_pp2", {}) for family in ("gpt_neox", "mistral", *DECODERS)),
           ("gpt_neox", "tp2_pp2", dict(use_parallel_residual=False, hidden_act="gelu_new",
                                        tie_word_embeddings=True)))])
def test_other_families_have_a_second_evaluation(run, store, tmp_path, family, name, changes):
    """The certificate of other families holds over several ranks, from a Hugging Face directory."""
    model = dict(model_type=family, **changes)
    first = write_run(tmp_path, store, "first", **model)
    train(run, first, *FP32, "run.stop_after=1")
    run("longhaul", "export", tmp_path / "first", "--out", tmp_path / "hf")
    log = from_source(run, tmp_path, store, tmp_path / "hf", LAYOUTS[name], *FP32, **model).stdout
    assert float(AGREES.search(log)[1]) < 3e-6


@pytest.mark.parametrize("family,change", [
    ("mistral", dict(sliding_window=12)),
    *later(("gpt_neox", dict(use_parallel_residual=False)),
           *((name, change) for name, (*_, change) in DECODERS.items()))])
def test_another_mathematics_of_another_family_is_named(run, store, tmp_path, family, change):
    first = write_run(tmp_path, store, "first", model_type=family)
    train(run, first, *FP32, "run.stop_after=1")
    run("longhaul", "export", tmp_path / "first", "--out", tmp_path / "hf")
    result = from_source(run, tmp_path, store, tmp_path / "hf", ONE, *FP32, check=False,
                         model_type=family, **change)
    assert result.returncode == 78
    assert next(iter(change)) in result.stderr and "given the same input, layer 0" in result.stderr


SCALINGS = {
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32},
    "yarn": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0, "beta_slow": 0.5,
             "truncate": False, "mscale": 2.0, "mscale_all_dim": 0.5,
             "original_max_position_embeddings": 32},
}


@pytest.mark.parametrize("kind,name", [("llama3", "pp2"), ("yarn", "tp2_sequence"),
                                       *later(("llama3", "tp2_pp2"), ("yarn", "tp2_pp2"))])
def test_scaled_rotation_and_tied_embeddings_are_known(run, store, tmp_path, kind, name):
    """The certificate knows a scaled rotation, over several ranks, of a model whose head is its
    embedding."""
    scaling = SCALINGS[kind]
    model = dict(rope_scaling=scaling, tie_word_embeddings=True)
    first = write_run(tmp_path, store, "first", **model)
    train(run, first, *FP32, "run.stop_after=1")
    log = from_source(run, tmp_path, store, tmp_path / "first", LAYOUTS[name], *FP32, **model).stdout
    assert float(AGREES.search(log)[1]) < 3e-6
    assert json.loads((tmp_path / "model" / "config.json").read_text())["rope_scaling"] == scaling
