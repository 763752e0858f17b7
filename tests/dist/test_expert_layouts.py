"""A mixture of experts is the same model in every layout, with its experts on any ranks."""

import json
import random

import pytest
from datasets import Dataset
from layouts import (FP32, IN_FP32, LAYOUTS, Result, curve, first_gradients, go_on_with, parallel,
                     relative, state, step_dir, tensors, train, violations, write_run)
from programs import later, split
from runs import edit_state

ONE = (1, [])
EXPERTS = {
    "ep2": parallel(2, zero=0, ep=2),
    "ep4": parallel(4, 1, zero=1, ep=4),
    "dp4_ep2_zero0": parallel(4, 1, zero=0, ep=2),
    "dp4_ep2_zero1": parallel(4, 1, zero=1, ep=2),
    "dp4_ep2_zero2": parallel(4, 1, zero=2, ep=2),
    "dp4_ep2_zero3": parallel(4, 1, zero=3, ep=2),
    "dp4_ep2_shard_group_2": parallel(4, 1, zero=3, ep=2, shard_group=2),
    "ep2_tp2_dp2": parallel(4, tp=2, ep=2),
    "ep2_tp2_dp2_whole_tokens": parallel(4, tp=2, ep=2, sequence=False),
    "ep2_pp2_dp2": parallel(4, pp=2, ep=2),
    "ep4_pp2": parallel(8, 1, pp=2, ep=4),
    "ep2_cp2": parallel(2, 4, cp=2, ep=2),
    "ep4_cp2_dp2": parallel(4, cp=2, ep=4),
    "ep2_interleaved": parallel(4, pp=2, ep=2, pipeline="interleaved", virtual_stages=2),
    "ep2_zb": parallel(4, pp=2, ep=2, pipeline="zb-h1"),
    **{name: LAYOUTS[name] for name in ("zero3", "tp2_sequence", "cp2_ring", "pp2")},
}
NOW = ["dp4_ep2_zero3", "ep2_tp2_dp2", "ep2_cp2"]
MIXTRAL, QWEN = dict(model_type="mixtral"), dict(model_type="qwen3_moe")
GLOBAL = ['experts.balance="global"', "experts.balance_weight=0.05", "experts.z_loss=0.001"]


@pytest.mark.parametrize("name", [*NOW, *later(*(n for n in EXPERTS if n not in NOW))])
def test_experts_in_a_layout_are_one_rank(judged, name):
    ours, one = (judged(layout, *FP32, steps=10, **QWEN) for layout in (EXPERTS[name], ONE))
    assert not violations(ours, one, IN_FP32)
    assert len(one.first_gradients) == 3 + 4 * 8 + 3 + 3 * (1 + 8 * 3)


# The first layer is a plain one that costs as much as three layers with experts, so that two stages
# have one and three layers; by the average of all layers they would have two each.
UNEVEN = dict(QWEN, intermediate_size=600, mlp_only_layers=[0])


@pytest.mark.parametrize("name", ["pp2", *later("ep2_pp2_dp2", "ep2_zb")])
def test_stages_cut_by_the_cost_of_each_layer_are_one_rank(judged, name):
    ours, one = (judged(layout, *FP32, steps=10, **UNEVEN) for layout in (EXPERTS[name], ONE))
    assert not violations(ours, one, IN_FP32)


@pytest.mark.parametrize("older", [True, *later(False)])
def test_a_run_keeps_the_stages_of_its_checkpoint(run, store, tmp_path, trained, older):
    """The checkpoint looks as if a version that cuts otherwise had written it: an older one, which
    recorded no cut, or one that did."""
    ranks, keys = EXPERTS["pp2"]
    path = write_run(tmp_path, store, **UNEVEN)
    by_hand = "parallel.partition=[2,2]"
    train(run, path, *keys, "run.steps=8", by_hand, "run.stop_after=3", ranks=ranks)

    def change(saved):
        assert saved["numerics"]["partition"] == [2, 2] and "partition = [2, 2]" in saved["config"]
        saved["config"] = saved["config"].replace("partition = [2, 2]", "partition = []")
        if older:
            del saved["numerics"]["partition"]

    edit_state(step_dir(tmp_path / "run", 3), change)

    def last_layers(*sets):
        words = [w for s in (*keys, *sets) for w in ("--set", s)]
        told = run("longhaul", "config", path, "--ranks", ranks, "--json", *words).stdout
        return [stage["end_layer"] for stage in json.loads(told)["layout"]["stages"]]

    assert last_layers() == [2, 4] and last_layers('checkpoint.resume="never"') == [1, 4]
    done = train(run, path, *keys, "run.steps=8", ranks=ranks)
    log = done.stdout + done.stderr
    assert ("the stages keep the layers that they have in the checkpoint, [2, 2]; a run that begins "
            "now has [1, 3]") in log
    assert "may differ bitwise" not in log and "does not record" not in log
    theirs = trained(EXPERTS["pp2"], "run.steps=8", by_hand, **UNEVEN)
    assert curve(tmp_path / "run") == curve(theirs)
    assert tensors(step_dir(tmp_path / "run", 8)) == tensors(step_dir(theirs, 8))
    assert state(step_dir(tmp_path / "run", 8)) == state(step_dir(theirs, 8))


def counts(run_dir, step):
    """How often each expert was chosen in a step: [layer][expert]."""
    text = next(step_dir(run_dir, step).glob("*state.json")).read_text()
    return [layer for layer in json.loads(text)["expert_counts"] if layer]


@pytest.mark.parametrize("name", ["dp4_ep2_zero1", *later("ep2_tp2_dp2", "ep4_pp2", "ep2_cp2")])
def test_routers_choose_in_a_layout_as_on_one_rank(trained, name):
    """The choices may differ where two experts are equally likely within 1e-5, which one token in
    some thousands may meet."""
    ours, one = (counts(trained(layout, *FP32, "run.steps=8", **QWEN), 8)
                 for layout in (EXPERTS[name], ONE))
    assert len(one) == 3 and all(sum(layer) == 8 * 32 * 3 for layer in [*ours, *one])
    differing = sum(abs(a - b) for x, y in zip(ours, one) for a, b in zip(x, y))
    assert differing <= 2
    assert max(max(layer) for layer in one) > 1.5 * 8 * 32 * 3 / 8  # there is something to see


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """Rows of 32 tokens, most of them with padding, and their lengths without it."""
    path = tmp_path_factory.mktemp("padded") / "rows"
    draw = random.Random(5)
    lengths = [draw.choice((4, 9, 20, 32)) for _ in range(80)]
    ids = [[min(int(draw.expovariate(0.05)), 299) for _ in range(n)] + [1] * (32 - n)
           for n in lengths]
    mask = [[1] * n + [0] * (32 - n) for n in lengths]
    Dataset.from_dict({"input_ids": ids, "attention_mask": mask}).save_to_disk(path)
    return f'data.train=[{{ path = "{path}" }}]', lengths


@pytest.mark.parametrize("name", ["ep2_cp2", *later(*(n for n in EXPERTS if n != "ep2_cp2"))])
def test_rows_with_padding_in_a_layout_are_one_rank(judged, padded, name):
    ours, one = (judged(layout, *FP32, padded[0], steps=10, **QWEN)
                 for layout in (EXPERTS[name], ONE))
    assert not violations(ours, one, IN_FP32)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["ep2_pp2_dp2", "ep2_tp2_dp2", "ep2_cp2"])
def test_loads_count_no_padding(trained, padded, name):
    source, lengths = padded
    run = trained(EXPERTS[name], *FP32, source, "data.shuffle=false", "run.steps=8", **QWEN)
    assert [sum(layer) for layer in counts(run, 8)] == [sum(lengths[56:64]) * 3] * 3


def test_results_have_the_ranks_over_which_experts_lie(trained):
    run = trained(EXPERTS["dp4_ep2_zero1"], *FP32, "run.steps=8", **QWEN)
    told = json.loads((run / "results.json").read_text())["results"]["parameters"]
    assert (told["Data parallel degree"], told["Expert parallel degree"]) == (4, 2)


@pytest.mark.parametrize("name", ["ep2_cp2", *later("dp4_ep2_zero1", "ep2_tp2_dp2", "ep4_pp2")])
def test_mixtral_balanced_by_the_step_before_is_one_rank(judged, name):
    ours, one = (judged(layout, *FP32, *GLOBAL, steps=10, **MIXTRAL)
                 for layout in (EXPERTS[name], ONE))
    assert not violations(ours, one, IN_FP32)


@pytest.mark.soak
def test_each_balance_changes_what_is_learnt(judged):
    off = judged(ONE, *FP32, 'experts.balance="off"', steps=10, **MIXTRAL)
    sequence = judged(ONE, *FP32, steps=10, **MIXTRAL)
    by_step = judged(ONE, *FP32, *GLOBAL, steps=10, **MIXTRAL)
    z = judged(ONE, *FP32, 'experts.balance="off"', "experts.z_loss=0.01", steps=10, **MIXTRAL)
    for other in (sequence, by_step, z):
        assert relative(other.losses, off.losses) > 1e-6


@pytest.mark.parametrize("before,after", [("ep4", "ep2"), *later(("ep2", "tp2_sequence"),
                                                                 ("tp2_sequence", "dp4_ep2_zero3"),
                                                                 ("dp4_ep2_zero3", "one"))])
def test_a_run_goes_on_with_experts_on_other_ranks(run, store, tmp_path, trained, before, after,
                                                   monkeypatch):
    for name, layout in EXPERTS.items():
        monkeypatch.setitem(LAYOUTS, name, layout)
    ours = go_on_with(run, store, tmp_path, trained, before, after, **QWEN)
    one = curve(trained(ONE, *FP32, "run.steps=8", **QWEN))
    assert relative([p[0] for p in ours], [p[0] for p in one]) <= 1e-5


@pytest.mark.parametrize("name,sets", [("ep2_zero1", GLOBAL), *later(
    ("dp4_ep2_zero1", GLOBAL), ("dp4_ep2_zero1", []),
    ("dp4_ep2_zero1", ['memory.recompute="full"']))])
def test_a_stopped_run_of_experts_goes_on_bitwise(run, store, tmp_path, trained, name, sets):
    layout = EXPERTS.get(name, parallel(2, zero=1, ep=2))
    ranks, keys = layout
    eight = [*sets, "run.steps=8"]
    path = write_run(tmp_path, store, **QWEN)
    train(run, path, *keys, *eight, "run.stop_after=3", ranks=ranks)
    train(run, path, *keys, *eight, ranks=ranks)
    theirs = trained(layout, *eight, **QWEN)
    assert curve(tmp_path / "run") == curve(theirs)
    assert tensors(step_dir(tmp_path / "run", 8)) == tensors(step_dir(theirs, 8))
    assert state(step_dir(tmp_path / "run", 8)) == state(step_dir(theirs, 8))


@pytest.mark.parametrize("kind", ["full", *later("selective")])
def test_recomputed_experts_change_no_bit(trained, kind):
    eight = ["run.steps=8"]
    ours, theirs = (trained(EXPERTS["ep2"], *eight, *sets, **QWEN)
                    for sets in ([f'memory.recompute="{kind}"'], []))
    assert curve(ours) == curve(theirs)


FAULTS = {
    "no_expert_sum": ("dp4_ep2_zero0", {"losses", "norms", "gradients"}),
    "experts_counted_twice": ("dp4_ep2_zero1", {"norms"}),
}


@pytest.mark.parametrize("fault", split(FAULTS, ["no_expert_sum"]))
def test_a_fault_of_experts_is_seen(run, store, tmp_path, judged, fault):
    name, kinds = FAULTS[fault]
    ranks, keys = EXPERTS[name]
    words = [w for s in (*keys, *FP32, "optimizer.clip=0") for w in ("--set", s)]
    result = run("longhaul_layout_tool", write_run(tmp_path, store, **QWEN), 4, *words,
                 "--fault", fault, ranks=ranks, env={"OMP_NUM_THREADS": "1"})
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    broken = Result([line["loss"] for line in lines], [line["grad_norm"] for line in lines],
                    first_gradients(tmp_path / "run"))
    found = violations(broken, judged(ONE, *FP32, steps=10, **QWEN), IN_FP32)
    assert kinds <= found.keys() and min(found[kind] for kind in kinds) > 5e-5


@pytest.mark.parametrize("ranks", [2, *later(4)])
def test_other_ranks_evaluate_a_run_whose_experts_were_spread(run, store, trained, ranks):
    directory = trained(EXPERTS["ep4"], *FP32, "run.steps=8", "run.stop_after=4", **QWEN)
    words = ["longhaul", "eval", directory, "--data", store, "--seq-len", 32, "--json"]
    found, alone = (json.loads(run(*words, ranks=n).stdout) for n in (ranks, 1))
    assert found["layout"]["ep"] == ranks
    assert found["loss"] == pytest.approx(alone["loss"], rel=1e-5)


@pytest.fixture(scope="module")
def source(run, trained, tmp_path_factory):
    """A Hugging Face directory of a mixture of experts."""
    path = tmp_path_factory.mktemp("source") / "hf"
    run("longhaul", "export", trained(ONE, *FP32, "run.steps=8", **QWEN), "--out", path)
    return path


@pytest.mark.parametrize("name,sets", [("ep2_tp2_dp2", []), *later(
    ("one", FP32), ("ep2_cp2", []), ("dp4_ep2_zero3", FP32), ("ep2_pp2_dp2", []))])
def test_a_sound_mixture_gets_its_certificate(run, store, source, tmp_path, name, sets):
    ranks, keys = EXPERTS.get(name, ONE)
    log = train(run, write_run(tmp_path, store, **QWEN), *keys, *sets, f'init.weights="{source}"',
                "run.stop_after=1", ranks=ranks).stdout
    assert "certificate: the loaded model's logits agree with the source's" in log
    assert "certificate: the first update started from the loaded weights" in log


@pytest.mark.parametrize("fault", ["permuted_router", "swapped_experts"])
@pytest.mark.parametrize("sets", [[], *later(FP32)])
def test_a_wrong_router_or_expert_stops_the_run(run, store, source, tmp_path, fault, sets):
    ranks, keys = EXPERTS["ep2"]
    words = [w for s in (*keys, *sets, f'init.weights="{source}"') for w in ("--set", s)]
    result = run("longhaul_layout_tool", write_run(tmp_path, store, **QWEN), 1, *words, "--fault",
                 fault, ranks=ranks, check=False, env={"OMP_NUM_THREADS": "1"})
    assert result.returncode != 0 and "step" not in result.stdout
    assert "[certificate] the loaded model" in result.stderr and "layer 2 (" in result.stderr


def test_another_number_of_experts_of_a_token_is_named(run, store, source, tmp_path):
    result = train(run, write_run(tmp_path, store, **QWEN, num_experts_per_tok=2), *FP32,
                   f'init.weights="{source}"', "run.stop_after=1", check=False)
    assert result.returncode == 78
    assert "num_experts_per_tok (2 in the run, 3 beside the weights)" in result.stderr


@pytest.mark.parametrize("nodes", [2, *later(1)])
def test_a_start_warns_where_rows_of_experts_go_between_machines(run, store, tmp_path, nodes):
    ranks, keys = EXPERTS["ep2_tp2_dp2"]
    done = train(run, write_run(tmp_path, store, **QWEN), *keys, "run.stop_after=1", ranks=ranks, nodes=nodes)
    said = (done.stdout + done.stderr).count("parallel.ep = 2 with parallel.tp = 2 spans machines")
    assert said == (1 if nodes == 2 else 0)


@pytest.mark.parametrize("ranks,sets,model,said", [
    (3, ["parallel.ep=3", "batch.global_size=6"], QWEN,
     "parallel.ep = 3 does not divide the 8 experts of each layer"),
    (1, ["parallel.ep=2"], QWEN, "parallel.ep = 2 does not divide the 1 rank of dp 1 x cp 1"),
    (1, ['experts.balance="pooled"'], QWEN,
     'experts.balance = "pooled" multiplies means over all layers'),
    (2, ["parallel.ep=2"], {}, "parallel.ep = 2 spreads experts over ranks, and the model of"),
    (4, ["parallel.ep=4", "parallel.zero=3", "parallel.shard_group=2", "batch.micro_size=1"], QWEN,
     None)])
def test_settings_that_do_not_fit_the_experts_are_refused(run, store, tmp_path, ranks, sets, model,
                                                          said):
    result = train(run, write_run(tmp_path, store, **model), *sets, "run.stop_after=1",
                   check=said is None, ranks=ranks)
    assert said is None or (result.returncode == 78 and said in result.stderr)
