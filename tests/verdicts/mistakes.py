"""Mistakes that make a case wrong. A mistake changes a case that fits, or returns False where it is
not possible in this case."""

import math

# Values that no layout can have, and keys that do not exist.
BAD_VALUES = [
    ("parallel.tp", 0), ("parallel.pp", 0), ("parallel.cp", 0), ("parallel.zero", 4),
    ("parallel.zero", -1), ("parallel.tp", 1000001), ("parallel.virtual_stages", 0),
    ("parallel.shard_group", 0), ("data.seq_len", 1), ("batch.micro_size", 0),
    ("batch.global_size", 0), ("batch.global_size", 10000000000), ("memory.recompute_layers", -1)]
BAD_TYPES = [
    ("parallel.tp", "2"), ("parallel.partition", 4), ("parallel.partition", [1.5, 2.5]),
    ("parallel.sequence", 1), ("parallel.shard_group", 1.5), ("parallel.zero", True),
    ("parallel.pp", 2.0), ("memory.recompute_layers", "all")]
BAD_CHOICES = [
    ("parallel.pipeline", "1f1f"), ("parallel.pipeline", "zb"), ("parallel.context", "rings"),
    ("parallel.shard_group", "nodes"), ("parallel.shard_group", "machine"),
    ("memory.recompute", "ful"), ("precision.compute", "fp16"), ("precision.reduce", "float32")]
NOT_BUILT = [("precision.compute", "fp8"), ("precision.master", "bf16_sr")]
UNKNOWN = [("parallel.dp", 2), ("batch.accumulation", 4), ("parallel.micro_size", 2),
           ("memory.offload", True), ("parallel.tensor", 2)]
BAD_SIZES = [("layers", 0), ("layers", 16385), ("vocab", 0), ("inner", 0), ("heads", 0)]


def one_of(table):
    def change(draws, case, axes):
        name, value = draws.pick(table)
        case["settings"][name] = value
    return change


def partition_of_zeros(draws, case, axes):
    counts = list(case["settings"].get("parallel.partition", [case["model"]["layers"]] * 2))
    counts[draws.between(0, len(counts) - 1)] = draws.pick([0, 0, -1])
    case["settings"]["parallel.partition"] = counts


def not_given(draws, case, axes):
    del case["settings"][draws.pick(["data.seq_len", "batch.global_size"])]


def micro_batches_that_do_not_divide(draws, case, axes):
    case["settings"]["batch.micro_size"] = case["settings"]["batch.global_size"] + 1


def virtual_stages_alone(draws, case, axes):
    if case["settings"].get("parallel.pipeline") == "interleaved":
        return False
    case["settings"]["parallel.virtual_stages"] = draws.between(2, 3)


def interleaved_alone(draws, case, axes):
    case["settings"]["parallel.pipeline"] = "interleaved"
    case["settings"].pop("parallel.virtual_stages", None)


def interleaved_on_one_stage(draws, case, axes):
    if axes["pp"] > 1:
        return False
    case["settings"].update({"parallel.pipeline": "interleaved", "parallel.virtual_stages": 2})


def length_against_context(draws, case, axes):
    if axes["cp"] == 1:
        return False
    case["settings"]["data.seq_len"] += draws.between(1, 2 * axes["cp"] - 1)
    case["model"]["positions"] += 2 * axes["cp"]


def length_against_sequence(draws, case, axes):
    settings = case["settings"]
    if axes["tp"] == 1 or not settings.get("parallel.sequence", True):
        return False
    # With cp the length has to pass the rule of cp, too.
    step = 2 * axes["cp"] if axes["cp"] > 1 else 1
    settings["data.seq_len"] += step
    case["model"]["positions"] += step
    return settings["data.seq_len"] // axes["cp"] % axes["tp"] != 0


def offload_without_full(draws, case, axes):
    case["settings"]["memory.offload_activations"] = True
    case["settings"]["memory.recompute"] = draws.pick(["none", "selective"])


def ranks_that_do_not_divide(draws, case, axes):
    name = draws.pick(["tp", "pp", "cp"])
    degree = draws.between(2, 9)
    case["settings"][f"parallel.{name}"] = degree
    return case["ranks"] % (math.prod(axes[a] for a in ("tp", "pp", "cp") if a != name)
                            * degree) != 0


def batch_that_does_not_divide(draws, case, axes):
    if axes["dp"] == 1:
        return False
    micro = case["settings"].get("batch.micro_size", 1)
    case["settings"]["batch.global_size"] += micro * draws.between(1, axes["dp"] - 1)


def model_of_no_size(draws, case, axes):
    name, value = draws.pick(BAD_SIZES)
    case["model"][name] = value
    if name == "layers":
        case.pop("override", None)


def hidden_without_head_dim(draws, case, axes):
    case["model"].pop("head_dim", None)
    case["model"]["hidden"] = case["model"]["heads"] * 4 + 1
    return case["model"]["heads"] > 1


def odd_heads(draws, case, axes):
    case["model"]["head_dim"] = draws.pick([1, 3, 7])


def wide_heads(draws, case, axes):
    case["model"]["head_dim"] = 1 << 22
    return case["model"]["heads"] > 1


def key_heads_that_do_not_divide(draws, case, axes):
    case["model"]["keys"] = case["model"]["heads"] + draws.between(1, 3)


def longer_than_the_model(draws, case, axes):
    most = case["settings"]["data.seq_len"] - 1
    case["model"]["positions"] = draws.between(max(1, most - 3), most)


def machines_in_disorder(draws, case, axes):
    if axes["dp"] * axes["cp"] < 3:
        return False
    case["settings"]["parallel.shard_group"] = "node"
    if case["settings"].get("parallel.zero") == 0:
        del case["settings"]["parallel.zero"]
    case["machines"] = "".join(draws.pick("ab" if case["ranks"] < 6 else "abc")
                               for _ in range(case["ranks"]))


def shard_group_that_does_not_divide(draws, case, axes):
    group = axes["dp"] * axes["cp"]
    size = draws.between(2, 2 * group + 1)
    case["settings"]["parallel.shard_group"] = size
    if case["settings"].get("parallel.zero") == 0:
        case["settings"]["parallel.zero"] = draws.between(1, 3)
    return group % size != 0


def shard_group_past_32_bits(draws, case, axes):
    case["settings"]["parallel.shard_group"] = (1 << 32) + draws.between(0, 3)


def layers_of(case):
    return case.get("override", case["model"]["layers"])


def set_layers(case, layers):
    case["override" if "override" in case else "model"] = (
        layers if "override" in case else {**case["model"], "layers": layers})


def stages_of(case, axes):
    return axes["pp"] * case["settings"].get("parallel.virtual_stages", 1)


def more_stages_than_layers(draws, case, axes):
    stages = stages_of(case, axes)
    if stages == 1:
        return False
    set_layers(case, draws.between(1, stages - 1))


def partition_of_other_length(draws, case, axes):
    layers, stages = layers_of(case), stages_of(case, axes)
    length = draws.pick([n for n in (stages - 1, stages + 1, 2, 3) if n not in (0, stages)])
    case["settings"]["parallel.partition"] = [max(1, layers // length)] * length


def partition_of_other_sum(draws, case, axes):
    layers, stages = layers_of(case), stages_of(case, axes)
    counts = [max(1, layers // stages)] * stages
    counts[draws.between(0, stages - 1)] += draws.between(1, 2)
    case["settings"]["parallel.partition"] = counts
    return sum(counts) != layers and max(counts) <= layers


def partition_of_more_than_all(draws, case, axes):
    layers, stages = layers_of(case), stages_of(case, axes)
    counts = [1] * stages
    counts[draws.between(0, stages - 1)] = layers + draws.between(1, 9)
    case["settings"]["parallel.partition"] = counts


def more_tensor_ranks_than(name):
    def change(draws, case, axes):
        if axes["tp"] == 1:
            return False
        size = draws.between(1, axes["tp"] - 1)
        case["model"][name] = size
        if name == "heads":
            case["model"].update(keys=1, head_dim=4)
    return change


def interleaved_with_odd_micro_batches(draws, case, axes):
    settings = case["settings"]
    if settings.get("parallel.pipeline") != "interleaved":
        return False
    step = settings.get("batch.micro_size", 1) * axes["dp"]
    settings["batch.global_size"] += step * draws.between(1, axes["pp"] - 1)


# Mistakes that the reader of a file refuses come last, since the others expect a case that can be
# read.
MISTAKES = {
    "global_size against micro_size": micro_batches_that_do_not_divide,
    "virtual_stages without interleaved": virtual_stages_alone,
    "interleaved without virtual_stages": interleaved_alone,
    "interleaved without pp": interleaved_on_one_stage,
    "seq_len against cp": length_against_context,
    "seq_len against tp": length_against_sequence,
    "offload without full": offload_without_full,
    "ranks against degrees": ranks_that_do_not_divide,
    "global_size against dp": batch_that_does_not_divide,
    "a model size out of range": model_of_no_size,
    "hidden_size against heads": hidden_without_head_dim,
    "an odd head_dim": odd_heads,
    "heads too wide": wide_heads,
    "key heads against heads": key_heads_that_do_not_divide,
    "seq_len against positions": longer_than_the_model,
    "machines in disorder": machines_in_disorder,
    "shard_group against dp x cp": shard_group_that_does_not_divide,
    "shard_group past 32 bits": shard_group_past_32_bits,
    "layers against stages": more_stages_than_layers,
    "partition of another length": partition_of_other_length,
    "partition of another sum": partition_of_other_sum,
    "partition of more than all layers": partition_of_more_than_all,
    "heads against tp": more_tensor_ranks_than("heads"),
    "vocabulary against tp": more_tensor_ranks_than("vocab"),
    "inner size against tp": more_tensor_ranks_than("inner"),
    "micro batches against interleaved": interleaved_with_odd_micro_batches,
    "a value out of range": one_of(BAD_VALUES),
    "a value of another type": one_of(BAD_TYPES),
    "a word that is no choice": one_of(BAD_CHOICES),
    "a value that is not built": one_of(NOT_BUILT),
    "a key that is none": one_of(UNKNOWN),
    "a partition with zeros": partition_of_zeros,
    "a required key not given": not_given,
}
