"""Every layout trains the same model as one rank."""

import functools
import itertools
import json

import pytest
from layouts import (DECODERS, FP32, IN_FP32, LAYOUTS, STEPS, assert_bf16_is_one_rank, curve, parallel,
                     relative, run_layout, train, violations, write_run)
from programs import later, split

ONE = (1, [])
MASKED = ["data.document_mask=true"]
# The layouts that `make test` tries; the others, and most in bf16, run under the label soak.
NOW = ["shard_group_2_of_4", "cp2_ring", "pp2_interleaved", "tp2_zero3"]
IN_BF16 = ["tp2_sequence", *later("zero3", "tp2_pp2_dp2")]


@pytest.mark.parametrize("name", split(LAYOUTS, NOW))
def test_a_layout_in_fp32_is_one_rank(judged, name):
    assert not violations(judged(LAYOUTS[name], *FP32), judged(ONE, *FP32), IN_FP32)


OTHERS = {"qwen2": dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2"),
          "qwen3": dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3"),
          "gpt2": dict(model_type="gpt2"),
          "gpt2_drops": dict(model_type="gpt2", embd_pdrop=0.1, attn_pdrop=0.1, resid_pdrop=0.1),
          "mistral": dict(model_type="mistral"),
          "gpt_neox": dict(model_type="gpt_neox"),
          **{name: dict(model_type=name) for name in DECODERS}}
TENSORS = {"qwen2": (3, 12), "qwen3": (3, 11), "gpt2": (4, 16), "gpt2_drops": (4, 16),
           "mistral": (3, 9), "gpt_neox": (4, 16),
           **{name: tensors for name, (_, _, tensors, _) in DECODERS.items()}}
# These models have dropout, a window, and norms of heads with two kinds of layers.
OTHERS_NOW = [("gpt2_drops", "tp2_cp2"), ("mistral", "cp2_ring"),
              ("gemma3_text", DECODERS["gemma3_text"][1])]


@pytest.mark.parametrize("family,name", split(
    itertools.product(OTHERS, LAYOUTS), OTHERS_NOW))
def test_a_layout_of_another_family_is_one_rank(judged, family, name):
    """Ten steps are compared, since later ones are ill-conditioned: Adam moves what has next to no
    gradient by its sign. (In torch, too, a rate that is 1e-7 off moves one norm by 7e-6 there.)"""
    ours, one = (judged(layout, *FP32, steps=10, **OTHERS[family])
                 for layout in (LAYOUTS[name], ONE))
    assert not violations(ours, one, IN_FP32)
    outside, in_block = TENSORS[family]
    assert len(one.first_gradients) == outside + in_block * 4


@pytest.mark.soak
@pytest.mark.parametrize("again", ["selective", "full"])
def test_dropout_is_seen_and_what_runs_again_drops_the_same(judged, again):
    one = judged(ONE, *FP32, steps=10, **OTHERS["gpt2_drops"])
    ours = judged(ONE, *FP32, f'memory.recompute="{again}"', steps=10, **OTHERS["gpt2_drops"])
    assert (ours.losses, ours.norms) == (one.losses, one.norms)
    plain = judged(ONE, *FP32, steps=10, **OTHERS["gpt2"])
    assert relative(one.losses, plain.losses) > 1e-3


@pytest.mark.soak
def test_shards_of_each_machine_are_one_rank(run, store, tmp_path, judged):
    on_two = functools.partial(run, nodes=2)
    ours = run_layout(on_two, tmp_path, store, parallel(4, 1, zero=3, shard_group="node"), *FP32)
    assert not violations(ours, judged(ONE, *FP32), IN_FP32)
    assert not violations(ours, judged(parallel(4, 1, zero=3), *FP32), IN_FP32)
    two = judged(LAYOUTS["shard_group_2_of_4"], *FP32)
    assert (ours.losses, ours.norms) == (two.losses, two.norms)


def test_the_model_learns_and_no_gradient_is_zero(judged):
    one = judged(ONE, *FP32)
    assert len(one.losses) == STEPS and one.losses[0] - one.losses[-1] >= 0.5
    assert len(one.first_gradients) == 3 + 9 * 4
    assert all(abs(value).max() > 0 for value in one.first_gradients.values())


@pytest.mark.soak
@pytest.mark.parametrize("tied", [True, False])
def test_a_padding_row_that_is_trained_is_seen(judged, tied):
    """A run that trains the padding row differs, so a layout that equals one rank does not train
    it."""
    one, trained = (judged(ONE, *FP32, tie_word_embeddings=tied, pad_token_id=row)
                    for row in (1, None))
    assert set(violations(trained, one, IN_FP32)) >= {"losses", "norms"}
    row, other = (run.first_gradients["model.embed_tokens.weight"][1] for run in (one, trained))
    assert (abs(row).max() == 0) == (not tied) and abs(other).max() > 0


@pytest.mark.parametrize("name", ["pp2", *later("tp2_pp2")])
def test_embeddings_tied_over_stages_are_one_tensor(judged, name):
    one = judged(ONE, *FP32, tie_word_embeddings=True)
    ours = judged(LAYOUTS[name], *FP32, tie_word_embeddings=True)
    assert not violations(ours, one, IN_FP32)
    assert "lm_head.weight" not in one.first_gradients


@pytest.mark.parametrize("name", ["cp2_ring", *later(("cp2_gather",))])
def test_document_bounds_hold_over_context_ranks(judged, name):
    # Ten steps are compared: the nineteenth batch is so sharp that rounding moves its norm by 1e-5
    # on some CPUs.
    one = judged(ONE, *FP32, *MASKED, steps=10)
    assert relative(one.losses, judged(ONE, *FP32, steps=10).losses) > 1e-3  # the mask is seen
    assert not violations(judged(LAYOUTS[name], *FP32, *MASKED, steps=10), one, IN_FP32)


@pytest.mark.parametrize("name", later("cp2_gather", "cp4_ring", "tp2_cp2"))
def test_a_window_within_documents_holds_over_context_ranks(judged, name):
    one = judged(ONE, *FP32, *MASKED, **OTHERS["mistral"])
    wider = judged(ONE, *FP32, *MASKED, sliding_window=64, **OTHERS["mistral"])
    assert relative(one.losses, wider.losses) > 1e-3  # the window is seen
    assert not violations(judged(LAYOUTS[name], *FP32, *MASKED, **OTHERS["mistral"]), one, IN_FP32)


@pytest.mark.parametrize("name", later(("pp2_interleaved",), ("tp2_pp2",), ("zero3",), ("tp4",)))
def test_blocks_in_a_row_and_a_tied_head_are_one_rank_in_gpt_neox(judged, name):
    serial = dict(OTHERS["gpt_neox"], use_parallel_residual=False, tie_word_embeddings=True)
    ours, one = (judged(layout, *FP32, steps=10, **serial) for layout in (LAYOUTS[name], ONE))
    assert not violations(ours, one, IN_FP32)


@pytest.mark.parametrize("name", IN_BF16)
def test_a_layout_in_bf16_is_one_rank_within_its_rounding(judged, name):
    assert_bf16_is_one_rank(judged, LAYOUTS[name])


def layer_norms(run_dir):
    events = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    return [[e["step"], e["embedding"], *e["layers"], e["head"]] for e in events
            if e["event"] == "layer_norms"]


@pytest.mark.parametrize("name", ["tp2_pp2", *later("zero3", "cp2_ring", "tp2_pp2_dp2")])
def test_gradient_norms_by_layer_are_those_of_one_rank_and_make_up_the_whole(trained, name):
    sets = [*FP32, "run.steps=4", "log.layer_norms_every=2"]
    ours, one = (trained(layout, *sets) for layout in (LAYOUTS[name], ONE))
    assert [norms[0] for norms in layer_norms(ours)] == [2, 4]
    for norms, theirs in zip(layer_norms(ours), layer_norms(one)):
        assert len(norms) == 1 + 1 + 4 + 1
        assert relative(norms, theirs) <= 1e-5
        whole = curve(ours)[norms[0] - 1][1]
        assert sum(n * n for n in norms[1:]) ** 0.5 == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("ranks,zero", [(2, 1), *later((4, 2), (1, 1))])
def test_clipping_is_the_same_everywhere(run, store, tmp_path, trained, ranks, zero):
    clipped = [*FP32, "optimizer.clip=0.5"]
    one = curve(trained(ONE, *clipped))
    ours = curve(trained(parallel(ranks, 1, zero=zero), *clipped))
    assert max(norm for _, norm, _ in one) > 0.5
    for part in range(2):
        assert relative([p[part] for p in ours], [p[part] for p in one]) <= 1e-5


def test_the_tolerance_sees_one_percent_of_learning_rate(judged):
    ours = judged(LAYOUTS["dp2"], *FP32, "optimizer.lr=3.03e-3")
    assert set(violations(ours, judged(ONE, *FP32), IN_FP32)) == {"losses", "norms"}


def test_a_finished_run_starts_again_and_ends(run, store, tmp_path):
    # The weights that ranks shared at the start are still being copied at the end.
    path = write_run(tmp_path, store)
    for _ in range(2):
        train(run, path, *LAYOUTS["zero1"][1], "run.steps=3", ranks=2)
