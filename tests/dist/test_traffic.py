"""The bytes that a rank sends in a step are those of the formulas here, for every kind of
layout. Two runs of different lengths are compared: start and end cancel out."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from programs import later
from runs import write_config  # noqa: E402

LAYERS, HIDDEN, INNER, VOCABULARY, HEADS, KEY_HEADS, HEAD_DIM = 4, 64, 96, 512, 4, 2, 16
SEQ, MICRO, GLOBAL = 32, 2, 8
COMPUTE, WIRE = 2, 4  # bytes: bf16 activations and weights, fp32 gradients
ALIGN = 1024  # tensors start at multiples of it (tensor/flat_buffers.h)

TOKENS = MICRO * SEQ  # of a micro batch
ACTIVATIONS = TOKENS * HIDDEN * COMPUTE


def round_up(value, to):
    return -(-value // to) * to


def bucket(sizes, ranks):
    return round_up(sum(round_up(size, ALIGN) for size in sizes), ALIGN * ranks)


def buckets(ranks, tp=1):
    """The elements of each bucket: vectors first, then one bucket per unit."""
    block = [HEADS * HEAD_DIM * HIDDEN] * 2 + [KEY_HEADS * HEAD_DIM * HIDDEN] * 2 \
        + [INNER * HIDDEN] * 3
    table = [VOCABULARY * HIDDEN // tp]
    return (bucket([HIDDEN] * (2 * LAYERS + 1), ranks), bucket(table, ranks),
            bucket([size // tp for size in block], ranks))


def whole(ranks):
    vectors, table, block = buckets(ranks)
    return vectors + 2 * table + LAYERS * block


def part(ranks, nbytes):
    """The bytes that a rank sends to scatter or to gather a buffer."""
    return nbytes * (ranks - 1) // ranks


def all_reduce(ranks, nbytes):
    return 2 * part(ranks, nbytes)


@pytest.fixture(scope="module")
def sent(run, tmp_path_factory):
    """What rank 0 sends in a step, the bytes or another figure: {group: {verb: bytes}}."""

    def call(ranks, *sets, nodes=1, figure=lambda count: count["bytes"]):
        counts = []
        for steps in (1, 3):
            path = tmp_path_factory.mktemp("traffic")
            config = write_config(path)
            model = json.loads((path / "model/config.json").read_text())
            model.update(num_hidden_layers=LAYERS, hidden_size=HIDDEN, intermediate_size=INNER,
                         vocab_size=VOCABULARY, num_attention_heads=HEADS,
                         num_key_value_heads=KEY_HEADS, head_dim=HEAD_DIM,
                         tie_word_embeddings=False)
            (path / "model/config.json").write_text(json.dumps(model))
            every = [f"run.steps={steps}", "schedule.warmup_steps=0", "checkpoint.every=0", f"batch.micro_size={MICRO}",
                     f"batch.global_size={GLOBAL}", f"data.seq_len={SEQ}", *sets]
            run("longhaul", "train", config, *[w for s in every for w in ("--set", s)],
                ranks=ranks, nodes=nodes, env={"OMP_NUM_THREADS": "1"})
            events = map(json.loads, (path / "run/events.jsonl").read_text().splitlines())
            (event,) = [e for e in events if e["event"] == "traffic"]
            assert event["steps"] == steps
            counts.append(event["sent"])
        one, three = counts
        difference = {}
        for group, verbs in three.items():
            for verb, count in verbs.items():
                before = one.get(group, {}).get(verb)
                more = figure(count) - (figure(before) if before else 0)
                assert more % 2 == 0
                if more:
                    difference.setdefault(group, {})[verb] = more // 2
        return difference

    return call


def logarithm(ranks):
    """The children of rank 0 in a tree."""
    return (ranks - 1).bit_length()


TARGETS = 2 * 8  # of the global batch: two numbers are summed over dp


@pytest.mark.parametrize("ranks", [2, *later(4)])
def test_plain_data_parallelism_all_reduces_the_gradients(sent, ranks):
    got = sent(ranks, "parallel.zero=0", "batch.micro_size=1" if ranks == 4 else "run.seed=1")
    assert got["dp"] == {"all_reduce": all_reduce(ranks, whole(ranks) * WIRE)
                         + logarithm(ranks) * TARGETS}


@pytest.mark.parametrize("ranks", [4, *later(8)])
def test_the_small_sums_of_a_step_go_through_a_tree(sent, ranks):
    """Each of them is one message of rank 0 to each of its children. How many there are also depends
    on how long the last save takes."""
    got = sent(ranks, "parallel.zero=1", "batch.micro_size=1",
               figure=lambda count: count["messages"] - logarithm(ranks) * count["calls"])
    assert "world" not in got
    assert set(got["dp"]) == {"all_gather", "reduce_scatter"}


@pytest.mark.soak
def test_zero_1_scatters_gradients_and_gathers_weights(sent):
    assert sent(2, "parallel.zero=1")["dp"] == {
        "all_reduce": TARGETS,
        "reduce_scatter": part(2, whole(2) * WIRE),
        "all_gather": part(2, whole(2) * COMPUTE),
    }


def test_zero_3_gathers_for_each_pass_and_scatters_once_per_micro_batch(sent):
    vectors, table, block = buckets(2)
    micro_batches = GLOBAL // MICRO // 2
    assert micro_batches == 2
    # The backward does not gather the embedding's and the head's weights again. Two blocks are held
    # at a time, so the blocks before a turn are still there when the pass comes back.
    turns = 2 * micro_batches - 1
    blocks = LAYERS + turns * (LAYERS - 2)
    gathered = vectors + micro_batches * 2 * table + blocks * block
    scattered = vectors + micro_batches * (2 * table + LAYERS * block)
    assert sent(2, "parallel.zero=3")["dp"] == {
        "all_reduce": TARGETS,
        "reduce_scatter": part(2, scattered * WIRE),
        "all_gather": part(2, gathered * COMPUTE),
    }


@pytest.mark.parametrize("gathered_gb,blocks", [
    # Two of three blocks are held. The passes of stage 0 are two forwards and two backwards.
    (0, 9),
    *later((0.001, 3)),  # room for all
])
def test_zero_3_in_a_pipeline_gathers_and_scatters_for_each_micro_batch(sent, gathered_gb, blocks):
    vectors = bucket([HIDDEN] * 2 * 3, 2)
    _, table, block = buckets(2)
    micro_batches = GLOBAL // MICRO // 2
    assert micro_batches == 2
    got = sent(4, "parallel.pp=2", "parallel.partition=[3,1]", "parallel.zero=3",
               f"memory.gathered_gb={gathered_gb}")["dp"]
    assert got["reduce_scatter"] == part(
        2, (vectors + micro_batches * (table + 3 * block)) * WIRE)
    assert got["all_gather"] == part(2, (vectors + table + blocks * block) * COMPUTE)


@pytest.mark.soak
def test_shard_groups_add_an_all_reduce_of_the_shards_over_replicas(sent):
    got = sent(4, "parallel.zero=1", "parallel.shard_group=2", "batch.micro_size=1")
    assert got["shard"] == {"reduce_scatter": part(2, whole(4) * WIRE),
                            "all_gather": part(2, whole(4) * COMPUTE)}
    assert got["replicas"] == {"all_reduce": all_reduce(2, whole(4) * WIRE // 2)}


@pytest.mark.parametrize("nodes", [2, *later(4)])
def test_shards_stay_on_their_node(sent, nodes):
    each = 4 // nodes
    got = sent(4, "parallel.zero=1", 'parallel.shard_group="node"', "batch.micro_size=1", nodes=nodes)
    assert got.get("shard", {}) == ({} if each == 1 else {
        "reduce_scatter": part(each, whole(4) * WIRE), "all_gather": part(each, whole(4) * COMPUTE)})
    between = {**got.get("dp", {}), **got.get("replicas", {})}
    assert set(between) == {"all_reduce"}
    # Between machines only sums of shards are sent, and the numbers of targets.
    shared = all_reduce(nodes, whole(4) * WIRE // each)
    assert between["all_reduce"] - shared in (0, logarithm(4) * TARGETS)


MICRO_BATCHES = GLOBAL // MICRO  # without data parallelism
# Each token sends its log-sum-exp and the target's logit in fp32.
COMBINED = part(2, 2 * TOKENS * 2 * 4)


def test_tensor_parallelism_all_reduces_twice_a_layer_and_direction(sent):
    # The embedding's result and the gradient of the head's input are all-reduced, too.
    times = MICRO_BATCHES * (4 * LAYERS + 2)
    assert sent(2, "parallel.tp=2", "parallel.sequence=false")["tp"] == {
        "all_reduce": times * all_reduce(2, ACTIVATIONS),
        "all_gather": MICRO_BATCHES * COMBINED,
        # The first rank broadcasts its gradients of the norms.
        "broadcast": buckets(1, tp=2)[0] * WIRE,
    }


@pytest.mark.soak
@pytest.mark.soak
def test_a_recomputed_block_sends_its_forward_again(sent):
    times = MICRO_BATCHES * (6 * LAYERS + 2)
    got = sent(2, "parallel.tp=2", "parallel.sequence=false", 'memory.recompute="full"')
    assert got["tp"]["all_reduce"] == times * all_reduce(2, ACTIVATIONS)


def test_sequence_parallelism_gathers_once_more_per_region(sent):
    vectors, _, _ = buckets(1, tp=2)
    scatters = MICRO_BATCHES * (4 * LAYERS + 2)
    gathers = scatters + MICRO_BATCHES * 2 * LAYERS
    assert sent(2, "parallel.tp=2")["tp"] == {
        "all_reduce": all_reduce(2, vectors * WIRE),  # norms saw a part of the tokens
        "reduce_scatter": scatters * part(2, ACTIVATIONS),
        "all_gather": gathers * part(2, ACTIVATIONS) + MICRO_BATCHES * COMBINED,
    }


KEYS = TOKENS // 2 * KEY_HEADS * HEAD_DIM  # elements of a rank's keys; as many values


def test_a_ring_passes_keys_and_values_round_and_their_gradients_home(sent):
    forward, backward = 2 * KEYS * COMPUTE, 2 * KEYS * (COMPUTE + WIRE)
    assert sent(2, "parallel.cp=2", 'parallel.context="ring"')["cp"] == {
        "send_recv": MICRO_BATCHES * LAYERS * (forward + backward)}


@pytest.mark.soak
@pytest.mark.soak
def test_recomputed_attention_passes_keys_and_values_once_more(sent):
    got = sent(2, "parallel.cp=2", 'memory.recompute="selective"')
    assert got["cp"] == {"send_recv": MICRO_BATCHES * LAYERS * 2 * KEYS * (3 * COMPUTE + WIRE)}


@pytest.mark.soak
@pytest.mark.soak
def test_gathered_context_sends_as_much_as_a_ring(sent):
    assert sent(2, "parallel.cp=2", 'parallel.context="gather"')["cp"] == {
        "all_gather": MICRO_BATCHES * LAYERS * 2 * 2 * KEYS * COMPUTE,
        "reduce_scatter": MICRO_BATCHES * LAYERS * 2 * KEYS * WIRE}


@pytest.mark.parametrize("schedule,chunks", [pytest.param("1f1b", 1, marks=pytest.mark.soak),
                                             ("interleaved", 2)])
def test_a_pipeline_sends_one_boundary_per_stage_and_micro_batch(sent, schedule, chunks):
    got = sent(2, "parallel.pp=2", f'parallel.pipeline="{schedule}"',
               f"parallel.virtual_stages={chunks}")
    # Rank 0 sends the activations of its chunks and the gradients of all of them but the first.
    assert got["pp"] == {"send_recv": MICRO_BATCHES * (2 * chunks - 1) * ACTIVATIONS}
