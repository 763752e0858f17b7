"""Which layouts are refused, and in which words: said a second time, apart from the program.

The order is that in which `longhaul train` comes to each rule, so that of two mistakes in a case
the same one is named. It knows what the cases of cases.jsonl can have wrong, and nothing else.
"""

from case_files import MODEL_FIELDS, toml_of

CHOICES = {
    "parallel.pipeline": ["gpipe", "1f1b", "interleaved", "zb-h1"],
    "parallel.context": ["ring", "gather"],
    "parallel.shard_group": ["world", "node"],
    "memory.recompute": ["none", "selective", "full"],
    "precision.compute": ["fp32", "bf16", "fp8"],
    "precision.master": ["fp32", "bf16_sr"],
    "precision.moments": ["fp32", "bf16"],
    "precision.gradients": ["fp32", "bf16"],
    "precision.reduce": ["fp32", "bf16"],
}
BUILT = {"precision.compute": ["fp32", "bf16"], "precision.master": ["fp32"]}
RANGES = {
    "data.seq_len": (2, 10**9), "batch.global_size": (1, 10**9), "batch.micro_size": (1, 10**9),
    "parallel.tp": (1, 10**6), "parallel.pp": (1, 10**6), "parallel.cp": (1, 10**6),
    "parallel.virtual_stages": (1, 10**6), "parallel.partition": (1, None),
    "parallel.zero": (0, 3), "parallel.shard_group": (1, None),
    "memory.recompute_layers": (0, None),
}
SWITCHES = ["parallel.sequence", "memory.offload_activations"]
UNKNOWN = {
    "parallel.dp": "other trainers have it, and no key takes its place: data-parallel ranks follow: "
                   "ranks / (pp x cp x tp)",
    "parallel.micro_size": "did you mean batch.micro_size?",
    "parallel.tensor": "valid here: tp, pp, cp, ep, context, sequence, pipeline, virtual_stages, "
                       "partition, zero, shard_group, auto, chosen",
    "batch.accumulation": "here batch.global_size says it: the accumulation follows: "
                          "batch.global_size / (batch.micro_size x data-parallel ranks)",
    "memory.offload": "valid here: recompute, recompute_layers, offload_activations",
}
OTHER_WORDS = {  # of other trainers
    "fp16": "; there is no fp16; bf16 needs no loss scale",
    "float32": '; did you mean "fp32"?',
}
REQUIRED = {
    "data.seq_len": "tokens per sequence; the last one is a target only",
    "batch.global_size": "sequences per optimizer step",
}
DEFAULTS = {
    "batch.micro_size": 1, "parallel.tp": 1, "parallel.pp": 1, "parallel.cp": 1,
    "parallel.sequence": True, "parallel.pipeline": "1f1b", "parallel.virtual_stages": 1,
    "parallel.partition": [], "parallel.zero": 1, "parallel.shard_group": "world",
    "memory.recompute": "none", "memory.offload_activations": False,
}
MODEL_RANGES = {
    "vocab": (1, 1 << 30), "hidden": (1, 1 << 22), "inner": (1, 1 << 22), "layers": (1, 1 << 14),
    "heads": (1, 1 << 22), "keys": (1, 1 << 22), "positions": (1, 1 << 31),
    "head_dim": (1, 1 << 22),
}


class Refused(Exception):
    def __init__(self, rule, words):
        super().__init__(words)
        self.rule, self.words = rule, words


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def quoted(words):
    return ", ".join(f'"{word}"' for word in words)


class Rules:
    """Checks the rules on one case; `check` raises Refused."""

    def __init__(self, case):
        self.case, self.ranks = case, case["ranks"]
        self.places = toml_of(case)[1]
        self.of = {**DEFAULTS, **case["settings"]}
        self.tp, self.pp, self.cp, self.chunks = (
            self.of[f"parallel.{k}"] for k in ("tp", "pp", "cp", "virtual_stages"))

    def check(self):
        for name, value in self.case["settings"].items():
            self.check_value(name, value)
        self.check_given()
        self.check_between()
        self.check_lengths()
        self.check_ranks()
        self.check_model()
        self.check_shards()
        self.check_stages()
        self.check_features()
        self.check_micro_batches()

    def refuse(self, rule, name, words):
        """Refuses a setting. A setting that is not in the file has the place of the file."""
        raise Refused(rule, f"[config] {self.places.get(name, 'run.toml:1:1')}: {words}")

    # The rules below are those of the reader of the file.

    def check_value(self, name, value):
        if name in UNKNOWN:
            self.refuse("a key that is none", f"key {name}",
                        f"unknown key {name}; {UNKNOWN[name]}")
        if name in SWITCHES:
            if not isinstance(value, bool):
                self.refuse_type(name, value, "true or false")
        elif name == "parallel.partition":
            self.check_partition_values(value)
        elif name == "parallel.shard_group" and not isinstance(value, (int, str)):
            self.refuse_type(name, value, '"world", "node" or a number of ranks')
        elif name in CHOICES and isinstance(value, str):
            self.check_word(name, value)
        elif name in RANGES:
            self.check_number(name, name, value)

    def refuse_type(self, name, value, expected, at=None):
        kinds = {bool: "a boolean", int: "an integer", str: "a string",
                 float: "a number with a fraction or exponent"}
        shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
        self.refuse("a value of another type", at or name,
                    f"{name}: expected {expected}, found {kinds[type(value)]} ({shown})")

    def check_number(self, name, limits, value, at=None):
        if type(value) is not int:
            self.refuse_type(name, value, "an integer", at)
        low, high = RANGES[limits]
        if value < low or (high is not None and value > high):
            rule = f"at least {low}" if high is None else f"from {low} to {high}"
            self.refuse("a value out of range", at or name, f"{name} = {value}: must be {rule}")

    def check_partition_values(self, counts):
        name = "parallel.partition"
        if not isinstance(counts, list):
            self.refuse_type(name, counts, "an array of integer")
        file, line, column = self.places[name].split(":")
        at = [f"{file}:{line}:{int(column) + 1 + len(''.join(f'{c}, ' for c in counts[:i]))}"
              for i in range(len(counts))]
        self.places.update({place: place for place in at})
        for i, count in enumerate(counts):  # all types come before all ranges
            if type(count) is not int:
                self.refuse_type(f"{name}[{i}]", count, "an integer", at=at[i])
        for i, count in enumerate(counts):
            self.check_number(f"{name}[{i}]", name, count, at=at[i])

    def check_word(self, name, value):
        choices = CHOICES[name]
        built = BUILT.get(name, choices)
        if value not in choices:
            nearest = min(built, key=lambda c: distance(value, c))
            near = distance(value, nearest) <= min(len(value) // 3, 2)
            hint = f'; did you mean "{nearest}"?' if near else ""
            hint = OTHER_WORDS.get(value, hint)
            self.refuse("a word that is no choice", name,
                        f'{name}: "{value}" is not one of {quoted(built)}{hint}')
        if value not in built:
            self.refuse("a value that is not built", name,
                        f'{name} = "{value}" is not available yet in this version; available: '
                        + quoted(built))

    def check_given(self):
        missing = [name for name in REQUIRED if name not in self.case["settings"]]
        if missing:
            words = ", ".join(f"{name} ({REQUIRED[name]})" for name in missing)
            section = missing[0].split(".")[0]
            self.refuse("a required key not given", f"[{section}]",
                        f"required and not given: {words}")

    # The rules below are those between settings.

    def check_between(self):
        whole, micro = self.of["batch.global_size"], self.of["batch.micro_size"]
        if whole % micro:
            below = whole // micro * micro
            self.refuse("global_size against micro_size", "batch.micro_size",
                        f"batch.global_size = {whole} does not divide into micro batches of "
                        f"batch.micro_size = {micro}; the nearest batch.global_size: "
                        + (f"{below} or " if below else "") + str(below + micro))
        interleaved = self.of["parallel.pipeline"] == "interleaved"
        if interleaved != (self.chunks > 1):
            key = "pipeline" if interleaved else "virtual_stages"
            without = "virtual_stages" if interleaved else "interleaved"
            which = "interleaved" if interleaved else "virtual_stages"
            self.refuse(f"{which} without {without}", f"parallel.{key}",
                        f"parallel.virtual_stages = {self.chunks} and pipeline = "
                        '"interleaved" go together: several stages per rank alternate; set '
                        "both, or neither")
        if interleaved and self.pp == 1:
            self.refuse("interleaved without pp", "parallel.pipeline",
                        'parallel.pipeline = "interleaved" needs parallel.pp of at least 2')

    def check_lengths(self):
        seq_len, unit = self.of["data.seq_len"], 2 * self.cp
        if self.cp > 1 and seq_len % unit:
            self.refuse("seq_len against cp", "parallel.cp",
                        f"data.seq_len = {seq_len} does not divide by 2 * cp = {unit}: every "
                        "rank has one early and one late part of a sequence; the nearest that "
                        f"does: {(seq_len // unit + 1) * unit}")
        local = seq_len // self.cp
        if self.tp > 1 and self.of["parallel.sequence"] and local % self.tp:
            self.refuse("seq_len against tp", "parallel.sequence",
                        f"parallel.sequence = true splits the {local} positions of a rank "
                        f"(data.seq_len {seq_len} / cp {self.cp}) over tp {self.tp}, which does "
                        "not divide them; change data.seq_len, or set parallel.sequence = false")
        if self.of["memory.offload_activations"] and self.of["memory.recompute"] != "full":
            self.refuse("offload without full", "memory.offload_activations",
                        'memory.offload_activations = true moves the activations that recompute = '
                        '"full" keeps; set memory.recompute = "full"')

    def check_ranks(self):
        world, replica = self.ranks, self.tp * self.pp * self.cp
        sizes = f"pp {self.pp} * cp {self.cp} * tp {self.tp}"
        if world % replica:
            verb = "rank does" if world == 1 else "ranks do"
            self.refuse("ranks against degrees", "parallel.tp",
                        f"{world:,} {verb} not divide into model replicas of {sizes} = {replica} "
                        f"ranks; start a multiple of {replica} (longhaul launch -n {replica}), or change "
                        "[parallel]")
        self.dp = world // replica
        whole, micro = self.of["batch.global_size"], self.of["batch.micro_size"]
        once = micro * self.dp
        if whole % once:
            below = whole // once * once
            self.refuse("global_size against dp", "batch.global_size",
                        f"batch.global_size = {whole} does not divide by batch.micro_size "
                        f"{micro} * dp {self.dp} = {once} (world {world} = pp {self.pp} * dp "
                        f"{self.dp} * cp {self.cp} * tp {self.tp}); "
                        + self.same_steps(whole, micro) + "the nearest batch.global_size: "
                        + (f"{below} or " if below else "") + str(below + once))

    def same_steps(self, whole, micro):
        if whole % self.dp:
            return ""
        each = whole // self.dp
        largest = max(m for m in range(1, min(micro, each) + 1) if each % m == 0)
        return f"set batch.micro_size = {largest}, which trains the same steps; or "

    # The rules below are those of the model.

    def check_model(self):
        model = dict(self.case["model"])
        model["layers"] = self.case.get("override", model["layers"])
        for name, (low, high) in MODEL_RANGES.items():
            if not low <= model.get(name, low) <= high:
                self.refuse_model("a model size out of range", name,
                                  f"= {model[name]} must be from {low} to {high}")
        heads, hidden = model["heads"], model["hidden"]
        keys = model.get("keys", heads)
        if "head_dim" not in model and hidden % heads:
            self.refuse_model("hidden_size against heads", "hidden",
                              f"= {hidden} does not divide by num_attention_heads = {heads}, and "
                              "head_dim is not given")
        head_dim = model.get("head_dim", hidden // heads)
        if head_dim % 2:
            self.refuse_model("an odd head_dim", "head_dim",
                              f"= {head_dim} must be even: RoPE turns pairs")
        if heads * head_dim > 1 << 22:
            self.refuse_model("heads too wide", "head_dim",
                              f"= {head_dim} times num_attention_heads = {heads} is above "
                              f"{1 << 22}")
        if heads % keys:
            self.refuse_model("key heads against heads", "keys",
                              f"= {keys} does not divide num_attention_heads = {heads}")
        self.model = {**model, "keys": keys, "head_dim": head_dim}
        seq_len, positions = self.of["data.seq_len"], model["positions"]
        if seq_len > positions:
            self.refuse("seq_len against positions", "data.seq_len",
                        f"data.seq_len = {seq_len} is above max_position_embeddings = "
                        f"{positions} of model/config.json; shorten it, or set "
                        "model.override.max_position_embeddings")

    def refuse_model(self, rule, name, words):
        raise Refused(rule, f"[model] model/config.json: {MODEL_FIELDS[name]} {words}")

    # The rules below are those of the layout of the ranks.

    def check_shards(self):
        group, size = self.dp * self.cp, self.of["parallel.shard_group"]
        if self.of["parallel.zero"] == 0 or size == "world":
            return
        if size == "node":
            self.check_machines()
            return
        size = (size + (1 << 31)) % (1 << 32) - (1 << 31)  # kept in 32 bits
        if size < 1 or group % size:
            raise Refused("shard_group against dp x cp",
                          f"[parallel] parallel.shard_group = {size} does not divide the {group} "
                          'ranks of dp x cp; choose one of their divisors, or "world"')

    def check_machines(self):
        """Each data group is checked by itself. Where two groups differ, a run fails in its first
        step."""
        machines = self.case.get("machines", "a" * self.ranks)
        stage = self.dp * self.cp * self.tp
        for rank in range(self.ranks):
            first = rank // stage * stage + rank % self.tp
            group = [machines[first + i * self.tp] for i in range(self.dp * self.cp)]
            sizes = [group.count(machine) for machine in group]
            apart = any(group[:i].count(machine) != i % size
                        for i, (machine, size) in enumerate(zip(group, sizes)))
            if apart or min(sizes) != max(sizes):
                raise Refused("machines in disorder",
                              '[parallel] parallel.shard_group = "node" needs the same number of '
                              "data parallel ranks on every machine, side by side; here there are "
                              f"{min(sizes)} to {max(sizes)}; start them so (srun "
                              "--distribution=block), or give a number")

    def check_stages(self):
        layers, stages = self.model["layers"], self.pp * self.chunks
        counts = self.of["parallel.partition"]
        if layers < stages:
            raise Refused("layers against stages",
                          f"[pipeline] {layers} layers cannot fill {stages} stages (parallel.pp x "
                          "virtual_stages): every stage holds at least one layer; use at most "
                          f"{layers} stages")
        if not counts:
            return
        if len(counts) != stages:
            raise Refused("partition of another length",
                          f"[pipeline] parallel.partition has {len(counts)} layer counts for "
                          f"{stages} stages (parallel.pp x virtual_stages); give one count per "
                          "stage")
        for count in counts:
            if count > layers:
                raise Refused("partition of more than all layers",
                              f"[pipeline] a stage of {count} layers; every stage holds at least "
                              f"one of the model's {layers} layers")
        if sum(counts) != layers:
            raise Refused("partition of another sum",
                          f"[pipeline] parallel.partition: the layer counts add up to "
                          f"{sum(counts)}, but the model has {layers} layers; change them by "
                          f"{layers - sum(counts)}")

    def check_features(self):
        model, tp = self.model, self.tp
        if tp > model["heads"]:
            raise Refused("heads against tp",
                          f"[parallel] parallel.tp = {tp} is more than the model's "
                          f"{model['heads']} query heads (num_attention_heads); use at most "
                          f"{model['heads']}")
        for rule, name, tensor in [
                ("vocabulary against tp", "vocab", "model.embed_tokens.weight"),
                ("inner size against tp", "inner", "model.layers.0.mlp.gate_proj.weight")]:
            if tp > model[name]:
                raise Refused(rule,
                              f"[parallel] parallel.tp = {tp} leaves ranks without a part of "
                              f"{tensor} [{model[name]}, {model['hidden']}] (dim 0); use a "
                              "smaller tp")

    def check_micro_batches(self):
        micro_batches = self.of["batch.global_size"] // (self.of["batch.micro_size"] * self.dp)
        if self.of["parallel.pipeline"] != "interleaved" or micro_batches % self.pp == 0:
            return
        below = micro_batches // self.pp * self.pp
        raise Refused("micro batches against interleaved",
                      '[pipeline] parallel.pipeline = "interleaved" needs a multiple of '
                      f"parallel.pp = {self.pp} micro batches, not {micro_batches}; change "
                      "batch.global_size or batch.micro_size so that there are "
                      + (f"{below} or " if below else "")
                      + f'{below + self.pp}, or choose "1f1b"')


def ruling(case):
    """The verdict by the rules, and the name of the rule that refuses."""
    try:
        Rules(case).check()
    except Refused as refused:
        return [78, refused.words], refused.rule
    return [0], "accepted"
