"""BERT in every kind of layout: the same terms of the loss and the same gradients as on one rank,
with dropout as well, whose draws do not depend on the layout."""

import h5py
import pytest
from bert_rows import make_examples
from layouts import (FP32, IN_FP32, LAYOUTS, assert_bf16_is_one_rank, curve, go_on_with, relative,
                     run_layout, train, violations, write_run)
from programs import later, split

ONE = (1, [])
PLAIN = dict(model_type="bert")
DROPPED = dict(PLAIN, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
MASKED_ONLY = dict(PLAIN, architectures=["BertForMaskedLM"])
# With dropout, where one is plain and the other is not.
NOW = ["cp2_ring", "pp2_dp2_zero3"]
STEPS = 8  # as of other families (test_layouts.py)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    path = tmp_path_factory.mktemp("examples") / "a_training_0.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in make_examples(160, 32, 6).items():
            file.create_dataset(name, data=values, compression="gzip")
    return path


@pytest.fixture(scope="module")
def judged(run, examples, tmp_path_factory):
    done = {}

    def call(layout, *sets, **changes):
        key = repr((layout, sets, sorted(changes.items())))
        if key not in done:
            done[key] = run_layout(run, tmp_path_factory.mktemp("bert"), examples, layout, *sets,
                                   **changes)
        return done[key]

    return call


def test_it_learns_and_no_gradient_is_zero(judged):
    one = judged(ONE, *FP32, steps=20, **DROPPED)
    assert one.losses[0] - one.losses[-1] >= 0.5
    assert len(one.first_gradients) == 5 + 16 * 4 + 4 + 1 + 4
    assert all(abs(value).max() > 0 for value in one.first_gradients.values())


@pytest.mark.soak
def test_dropout_is_seen(judged):
    dropped, plain = (judged(ONE, *FP32, steps=STEPS, **m) for m in (DROPPED, PLAIN))
    assert relative(dropped.losses, plain.losses) > 1e-3


@pytest.mark.parametrize("name", split(LAYOUTS, NOW))
def test_a_layout_is_one_rank_with_dropout(judged, name):
    ours, one = (judged(layout, *FP32, steps=STEPS, **DROPPED) for layout in (LAYOUTS[name], ONE))
    assert not violations(ours, one, IN_FP32)


@pytest.mark.parametrize("name", split(LAYOUTS, ["tp2_pp2"]))
def test_a_layout_is_one_rank_without_dropout(judged, name):
    ours, one = (judged(layout, *FP32, steps=STEPS, **PLAIN) for layout in (LAYOUTS[name], ONE))
    assert not violations(ours, one, IN_FP32)


@pytest.mark.parametrize("name", ["zero3", *later("tp2_pp2", "tp4_sequence")])
def test_one_term_alone_is_one_rank(judged, name):
    ours, one = (judged(layout, *FP32, steps=STEPS, **MASKED_ONLY)
                 for layout in (LAYOUTS[name], ONE))
    assert not violations(ours, one, IN_FP32)
    assert not any("pooler" in n or "seq_relationship" in n for n in one.first_gradients)


@pytest.mark.parametrize("again", ["selective", *later("full")])
def test_what_runs_again_drops_the_same(judged, again):
    one = judged(ONE, *FP32, steps=STEPS, **DROPPED)
    ours = judged(ONE, *FP32, f'memory.recompute="{again}"', steps=STEPS, **DROPPED)
    assert (ours.losses, ours.norms) == (one.losses, one.norms)


@pytest.mark.parametrize("name", later("zero3", "tp2_pp2_dp2"))
def test_a_layout_in_bf16_is_one_rank_within_its_rounding(judged, name):
    def of_bert(layout, *sets, **changes):
        return judged(layout, *sets, **{**DROPPED, **changes})

    assert_bf16_is_one_rank(of_bert, LAYOUTS[name])


@pytest.mark.parametrize("before, after", [
    ("tp2_pp2", "zero3"), *later(("cp2_ring", "tp4"))])
def test_a_checkpoint_goes_on_in_another_layout_and_drops_what_one_rank_drops(
        run, examples, tmp_path_factory, before, after):
    def trained(layout, *sets, **changes):
        path = tmp_path_factory.mktemp("trained")
        ranks, keys = layout
        train(run, write_run(path, examples, **changes), *keys, *sets, ranks=ranks)
        return path / "run"

    one = curve(trained(ONE, *FP32, "run.steps=8", **DROPPED))
    ours = go_on_with(run, examples, tmp_path_factory.mktemp("second"), trained, before, after,
                      **DROPPED)
    assert len(ours) == 8
    for part in range(2):
        assert relative([p[part] for p in ours], [p[part] for p in one]) <= 1e-5
