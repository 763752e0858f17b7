"""Weights without masters, rounded at random: the same in every layout, and near to those with."""

import numpy
import pytest
from layouts import curve, parallel, state_tensors, step_dir, train, write_run

STATES = ['precision.master="bf16_sr"', 'precision.moments="bf16"', 'precision.gradients="bf16"']
# With one micro batch a rank and without clipping, gradients have the same bits however ranks share
# them.
SAME = ["batch.micro_size=4", "optimizer.clip=0", "run.steps=6"]


def trained_with(run, path, store, ranks, *sets):
    train(run, write_run(path, store), *SAME, *sets, ranks=ranks)
    last = step_dir(path / "run", 6)
    return curve(path / "run"), {kind: state_tensors(last, kind)
                                 for kind in ("weight", "exp_avg", "exp_avg_sq")}


@pytest.mark.parametrize("tp", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_zero_0_1_and_3_round_alike(run, store, tmp_path, tp):
    results = []
    for zero in (0, 1, 3):
        ranks, keys = parallel(2 * tp, 4, zero=zero, tp=tp)
        results.append(trained_with(run, tmp_path / str(zero), store, ranks, *keys, *STATES))
    for curve_of, tensors in results[1:]:
        assert [p[0] for p in curve_of] == [p[0] for p in results[0][0]]  # norms are added otherwise
        for kind, values in results[0][1].items():
            for name, value in values.items():
                assert numpy.array_equal(tensors[kind][name], value), (kind, name)


def test_another_seed_of_the_run_rounds_otherwise(run, store, tmp_path):
    """The rounding is the only thing in this run that depends on its seed."""
    start = tmp_path / "start"
    train(run, write_run(start, store), "run.stop_after=1", "optimizer.lr=1e-9")
    sets = [*STATES, f'init.weights="{start}/run"', "init.certificate=false", "data.shuffle=false"]
    one, same, other = (trained_with(run, tmp_path / f"{i}", store, 1, *sets, f"run.seed={seed}")
                        for i, seed in enumerate((1, 1, 2)))
    assert one[0] == same[0]
    assert one[0][0] == other[0][0]  # the first step's loss
    assert one[0] != other[0]
    differ = [n for n, v in one[1]["weight"].items() if not numpy.array_equal(v, other[1]["weight"][n])]
    assert len(differ) == len(one[1]["weight"])


def test_what_is_learnt_without_masters_is_near_to_what_is_learnt_with(run, store, tmp_path):
    sets = ["run.steps=20", "checkpoint.every=0"]
    exact, rounded = tmp_path / "exact", tmp_path / "rounded"
    train(run, write_run(exact, store), *sets)
    train(run, write_run(rounded, store), *sets, *STATES)
    ours, theirs = ([p[0] for p in curve(path / "run")] for path in (rounded, exact))
    assert ours[0] == theirs[0]
    assert theirs[0] - theirs[-1] >= 0.5
    assert max(abs(a - b) / b for a, b in zip(ours, theirs)) <= 0.02
