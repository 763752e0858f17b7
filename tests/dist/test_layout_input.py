"""Layouts that do not fit are refused in words, at once, on all ranks."""

import os
import subprocess

import pytest
from layouts import parallel, train, write_run
from programs import split

LIMIT = 60  # seconds; a refusal takes about one

# name -> layout, further settings, words of the message
# rules_test and layout_description_test hold the rules themselves, without ranks.
NOW = ["world_that_does_not_divide", "shard_group_that_divides_nothing"]
REFUSED = {
    "world_that_does_not_divide": (
        parallel(3, tp=2), [],
        ["parallel.tp", "3 ranks do not divide", "pp 1 * cp 1 * tp 2 = 2 ranks"]),
    "batch_that_does_not_divide": (
        parallel(3, zero=1), [],
        ["batch.global_size = 8", "micro_size 2 * dp 3 = 6", "6 and 12"]),
    "more_tensor_ranks_than_query_heads": (
        parallel(8, tp=8, sequence=False), [], ["parallel.tp = 8", "6 query heads"]),
    "length_that_does_not_divide_for_context": (
        parallel(2, cp=2), ["data.seq_len=30"],
        ["data.seq_len = 30", "2 * cp = 4", "nearest", "32"]),
    "length_that_does_not_divide_for_sequence": (
        parallel(2, tp=2), ["data.seq_len=31"],
        ["parallel.sequence = true", "31 positions", "parallel.sequence = false"]),
    "interleaved_with_odd_micro_batches": (
        parallel(2, pp=2, pipeline="interleaved", virtual_stages=2), ["batch.global_size=6"],
        ["interleaved", "3", "multiple", "2"]),
    "virtual_stages_without_interleaved": (
        parallel(2, pp=2, virtual_stages=2), [],
        ["parallel.virtual_stages = 2", 'pipeline = "interleaved"']),
    "interleaved_without_virtual_stages": (
        parallel(2, pp=2, pipeline="interleaved"), [],
        ["parallel.virtual_stages = 1", 'pipeline = "interleaved"']),
    "more_stages_than_layers": (
        parallel(4, pp=4, pipeline="interleaved", virtual_stages=2), [], ["4 layers", "8"]),
    "shard_group_that_divides_nothing": (
        parallel(4, 1, zero=3, shard_group=3), [],
        ["parallel.shard_group = 3", "4 ranks of dp x cp", "divisors"]),
    "partition_that_does_not_add_up": (
        parallel(2, pp=2, partition=[1, 2]), [],
        ["parallel.partition", "add up to 3", "the model has 4 layers"]),
    "partition_of_too_many_stages": (
        parallel(2, pp=2, partition=[1, 1, 2]), [],
        ["parallel.partition has 3 layer counts for 2 stages", "parallel.pp"]),
}


@pytest.mark.parametrize("name", split(REFUSED, NOW))
def test_a_layout_that_does_not_fit_is_refused(binary, store, tmp_path, name):
    (ranks, keys), sets, words = REFUSED[name]
    path = write_run(tmp_path, store)
    command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none",
               binary("longhaul"), "train", str(path)]
    for setting in [*keys, *sets]:
        command += ["--set", setting]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT,
                            env=dict(os.environ, OMP_NUM_THREADS="1",
                                     OMPI_ALLOW_RUN_AS_ROOT="1",
                                     OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
    assert result.returncode == 78, result.stderr
    errors = [line for line in result.stderr.splitlines() if "longhaul: error:" in line]
    assert len(errors) == 1, result.stderr
    for word in words:
        assert word in errors[0]
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("machines,words", [
    ("abab", "here there are 2 to 2"), ("aaab", "here there are 1 to 3")])
def test_shards_of_each_machine_need_as_many_ranks_side_by_side(run, store, tmp_path, machines,
                                                                words):
    ranks, keys = parallel(4, 1, zero=3, shard_group="node")
    refused = train(run, write_run(tmp_path, store), *keys, ranks=ranks, nodes=list(machines),
                    check=False)
    assert refused.returncode == 78
    assert 'shard_group = "node"' in refused.stderr and words in refused.stderr
