"""No rank ever holds the state of a whole large tensor: not at the start, not in a step,
not while it is saved."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import steps_of, write_config  # noqa: E402

MIB = 1 << 20
# The number of parameters in the embedding, and also in the head.
TABLE = 16 * MIB
# Weights, gradients, masters and moments of one table: 18 bytes a parameter.
ALLOWED = 18 * TABLE

# A quarter of the state of embedding and head. Under zero 3 the weights and gradients of one of
# them are whole while it is in use.
QUARTER = 18 * 2 * TABLE // 4
# A save copies what the rank saves to host memory: its masters and moments once more.
STAGING = 12 * 2 * TABLE // 4
SYNCHRONOUS = "checkpoint.async=false"
# The difference of two peaks is a little less than that of the models: the tiny model's tensors lie
# on large pages of their own, which the tensors of the large model fill.
LEAST = 0.9
# The factor by which a rank may hold more than its layout owns: messages, a piece of a product, and
# unused parts of the heap. A second copy of both tables' weights in bf16 is more than that.
BEYOND = 1.12
SHARDED = {
    "zero 3": (4, ["parallel.zero=3", SYNCHRONOUS], QUARTER + (2 + 4) * TABLE),
    "tp 4": (4, ["parallel.tp=4", SYNCHRONOUS], QUARTER),
    "tp 4, a save in mid-run": (4, ["parallel.tp=4", "run.steps=2", "checkpoint.every=1"],
                                QUARTER + STAGING),
}


@pytest.fixture(scope="module")
def memory(run, tmp_path_factory):
    """Peak resident bytes of the largest rank, beyond those of a tiny model."""

    def peak(ranks, hidden, vocabulary, sets):
        path = tmp_path_factory.mktemp("born")
        config = write_config(path)
        model = json.loads((path / "model/config.json").read_text())
        model.update(hidden_size=hidden, vocab_size=vocabulary, num_attention_heads=8,
                     num_key_value_heads=4, head_dim=16, num_hidden_layers=1)
        (path / "model/config.json").write_text(json.dumps(model))
        every = ["run.steps=1", "schedule.warmup_steps=0", "checkpoint.every=0",
                 "batch.micro_size=1", "batch.global_size=4", *sets]
        run("longhaul", "train", config, *[w for s in every for w in ("--set", s)], ranks=ranks,
            env={"OMP_NUM_THREADS": "1"})
        return max(r["memory_peak_bytes"] for r in steps_of(path / "run").values())

    def call(ranks, sets):
        return peak(ranks, 256, TABLE // 256, sets) - peak(ranks, 256, 512, sets)

    return call


@pytest.mark.parametrize("name", ["zero 3", pytest.param("tp 4", marks=pytest.mark.soak),
                                  "tp 4, a save in mid-run"])
def test_no_rank_holds_the_state_of_one_large_tensor(memory, name):
    ranks, sets, expected = SHARDED[name]
    grown = memory(ranks, sets)
    assert LEAST * expected < grown < min(BEYOND * expected, ALLOWED), f"{grown / MIB:.0f} MiB"


def test_the_measure_sees_a_rank_that_holds_everything(memory):
    assert memory(1, [SYNCHRONOUS]) > LEAST * 2 * ALLOWED


@pytest.mark.soak
def test_the_measure_sees_ranks_that_hold_all_weights(memory):
    """Under zero 1 the optimizer's state is split, but weights and gradients are whole, so a rank
    holds more than under zero 3."""
    ranks, _, expected = SHARDED["zero 3"]
    assert memory(ranks, ["parallel.zero=1", SYNCHRONOUS]) > BEYOND * expected
