"""The runs that are compared: every kind of layout, precision and event that has numbers of
its own. What a run costs is its start, so that each takes few steps of a tiny model."""

import hashlib
import json
import random
from dataclasses import asdict, dataclass, field

# Sizes that 4 ranks do not divide, and fewer key heads than that.
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 301,
    "hidden_size": 96, "intermediate_size": 150, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "initializer_range": 0.05, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

# The other families' own names for such sizes; a case changes some of these.
FAMILIES = {
    "llama": MODEL,
    "mistral": {**MODEL, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
                "sliding_window": 10},
    "qwen2": {**MODEL, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {**MODEL, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    "gemma3": {**{k: v for k, v in MODEL.items() if k != "rope_theta"},
               "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
               "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24,
               "sliding_window": 10, "sliding_window_pattern": 2},
    "olmo2": {**MODEL, "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"},
    "olmo3": {**MODEL, "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3",
              "sliding_window": 10,
              "rope_parameters": {"sliding_attention": {"rope_theta": 500000.0}}},
    "granite": {**MODEL, "architectures": ["GraniteForCausalLM"], "model_type": "granite",
                "embedding_multiplier": 6.0, "attention_multiplier": 0.2,
                "residual_multiplier": 0.4, "logits_scaling": 2.0, "attention_bias": True},
    "smollm3": {**MODEL, "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3",
                "pad_token_id": 0},
    "mixtral": {**MODEL, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                "sliding_window": 10, "num_local_experts": 5, "num_experts_per_tok": 2,
                "output_router_logits": True, "router_aux_loss_coef": 0.02},
    "qwen3_moe": {**MODEL, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                  "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 50,
                  "norm_topk_prob": True, "mlp_only_layers": [1], "output_router_logits": True},
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 301,
        "n_embd": 96, "n_inner": 150, "n_layer": 4, "n_head": 6, "n_positions": 64,
        "initializer_range": 0.05, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "torch_dtype": "bfloat16",
    },
    "gpt_neox": {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "vocab_size": 301,
        "hidden_size": 96, "intermediate_size": 150, "num_hidden_layers": 4,
        "num_attention_heads": 6, "max_position_embeddings": 64, "layer_norm_eps": 1e-5,
        "rotary_emb_base": 10000, "rotary_pct": 0.25, "use_parallel_residual": True,
        "hidden_act": "gelu", "initializer_range": 0.05, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
    "bert": {
        "architectures": ["BertForPreTraining"], "model_type": "bert", "vocab_size": 331,
        "hidden_size": 96, "intermediate_size": 150, "num_hidden_layers": 4,
        "num_attention_heads": 6, "max_position_embeddings": 64, "layer_norm_eps": 1e-12,
        "hidden_act": "gelu", "type_vocab_size": 2, "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "initializer_range": 0.05,
        "torch_dtype": "bfloat16",
    },
}

# Paths are relative: whatever is made of them is the same wherever the runs lie.
RUN = """\
[run]
dir = "run"
steps = 6
seed = 1234
device = "cpu"
threads = 1
[model]
config = "model"
[data]
seq_len = 32
train = [{ synthetic = 200 }]
[batch]
global_size = 8
micro_size = 2
[optimizer]
lr = 3e-3
[schedule]
kind = "cosine"
warmup_steps = 2
[checkpoint]
every = 0
keep = 0
[log]
tensorboard = false
"""


@dataclass
class Stage:
    """One start of `longhaul train`."""

    ranks: int
    sets: list
    exit: int = 0
    nodes: int = 0  # machines that the ranks pretend to be on; 0: the one they are on


@dataclass
class Case:
    """Starts one after the other in one directory, judged by what all of them leave in `run`.
    With `handed_over` the first start is the old build's, whichever goes on."""

    name: str
    stages: list
    model: dict = field(default_factory=dict)
    family: str = "llama"
    handed_over: bool = False

    def config(self):
        return {**FAMILIES[self.family], **self.model}

    @property
    def ranks(self):
        return max(stage.ranks for stage in self.stages)

    def definition(self):
        """Changes with whatever the case trains, so that no two cases are taken for one."""
        whole = [RUN, self.config(), DOCUMENTS, asdict(self)]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


def settings(micro_size, compute, keys):
    return [f'precision.compute="{compute}"', f"batch.micro_size={micro_size}",
            *(f"parallel.{key}={json.dumps(value)}" for key, value in keys.items())]


def case(name, ranks, compute, *sets, micro=2, model=None, **keys):
    stage = Stage(ranks, [*settings(micro, compute, keys), *sets])
    return Case(f"{name}_{compute}", [stage], model or {})


# Documents of ready ids: no tokenizer has a part in it.
DOCUMENTS = {"seed": 7, "count": 300, "shortest": 4, "longest": 60}


def documents():
    draw = random.Random(DOCUMENTS["seed"])
    for _ in range(DOCUMENTS["count"]):
        length = draw.randint(DOCUMENTS["shortest"], DOCUMENTS["longest"])
        start, stride = draw.randint(0, 300), draw.randint(1, 9)
        yield [(start + i * stride) % MODEL["vocab_size"] for i in range(length)]


FP32, BF16 = "fp32", "bf16"
TIED = {"tie_word_embeddings": True}
ROPE = {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}
STORE = 'data.train=[{path="../data/store"}]'
HELD_OUT = 'data.validation=[{name="held", path="../data/held"}]'
MASKED = [STORE, "data.document_mask=true"]
COMPOSITE = "run.fused=false"


def recompute(kind, *more):
    return [f'memory.recompute="{kind}"', *more]


def fault(step, kind):
    return f'debug.faults=[{{step = {step}, kind = "{kind}"}}]'


def on_bad_step(action, *more):
    return [f'resilience.on_bad_step="{action}"', *more]


LAMB = ['optimizer.kind="lamb"', "optimizer.lr=2e-2"]
NO_MASTERS = ['precision.master="bf16_sr"', 'precision.moments="bf16"', 'precision.gradients="bf16"']


ONE_RANK = [
    case("one", 1, FP32),
    case("one", 1, BF16),
    case("one_composite", 1, FP32, COMPOSITE),
    case("one_composite", 1, BF16, COMPOSITE),
    case("one_tied", 1, FP32, model=TIED),
    case("one_llama3_rope", 1, BF16, model=ROPE),
    case("one_accumulation", 1, BF16, micro=1),
    case("one_threads_2", 1, FP32, "run.threads=2"),
    case("one_recompute_selective", 1, BF16, *recompute("selective")),
    case("one_recompute_full", 1, FP32, *recompute("full")),
    case("one_recompute_2_layers", 1, BF16, *recompute("full", "memory.recompute_layers=2")),
    case("one_small_states", 1, BF16, *(f'precision.{what}="bf16"'
                                       for what in ("moments", "gradients"))),
    case("one_hf_adamw_z_loss", 1, FP32, 'optimizer.convention="hf"', "optimizer.z_loss=0.01",
         'optimizer.groups=[{match="*embed*", lr_scale=0.5, weight_decay=0.0}]'),
    case("one_lamb", 1, FP32, *LAMB, 'optimizer.groups=[{match="*embed*", lr_scale=0.5}]'),
    case("one_no_masters", 1, BF16, *NO_MASTERS),
    case("one_documents", 1, FP32, *MASKED),
    case("one_validation", 1, BF16, STORE, HELD_OUT, "validation.every=2",
         "validation.batches=2"),
    case("one_mixture", 1, FP32,
         'data.train=[{path="../data/store", weight=0.7}, {synthetic=60, weight=0.3}]',
         "data.changes=[{step=4, weights=[0.2, 0.8]}]"),
]

DATA = [
    case("dp2_zero0", 2, FP32, zero=0),
    case("dp4_zero0", 4, BF16, micro=1, zero=0),
    case("dp3_zero1", 3, FP32, "batch.global_size=9", micro=1, zero=1),
    case("dp2_zero1", 2, BF16, zero=1),
    case("dp2_zero2", 2, FP32, zero=2),
    case("dp4_zero2", 4, BF16, micro=1, zero=2),
    case("dp2_zero3", 2, FP32, zero=3),
    case("dp4_zero3", 4, BF16, micro=1, zero=3),
    case("dp2_small_reduce", 2, BF16, 'precision.reduce="bf16"', zero=1),
    case("dp4_zero1_groups_of_2", 4, BF16, micro=1, zero=1, shard_group=2),
    case("dp4_zero3_groups_of_2", 4, FP32, micro=1, zero=3, shard_group=2),
    case("dp2_zero3_recompute", 2, BF16, *recompute("full"), zero=3),
    case("dp2_validation", 2, FP32, STORE, HELD_OUT, "validation.every=3",
         "validation.batches=2", zero=1),
]

TENSOR = [
    case("tp2", 2, FP32, tp=2, sequence=False),
    case("tp2", 2, BF16, tp=2, sequence=False),
    case("tp2_sequence", 2, FP32, tp=2),
    case("tp2_sequence", 2, BF16, tp=2),
    case("tp2_sequence_recompute", 2, BF16, *recompute("full"), tp=2),
    case("tp2_composite", 2, FP32, COMPOSITE, tp=2),
    case("tp2_tied", 2, FP32, model=TIED, tp=2),
    case("tp3_more_than_key_heads", 3, FP32, tp=3, sequence=False),
    case("tp4_uneven_heads", 4, BF16, tp=4, sequence=False),
    case("tp4_uneven_heads_sequence", 4, FP32, tp=4),
]

CONTEXT = [
    case("cp2_ring", 2, FP32, cp=2, context="ring"),
    case("cp2_gather", 2, BF16, cp=2, context="gather"),
    case("cp4_ring", 4, BF16, cp=4, context="ring"),
    case("cp4_gather", 4, FP32, cp=4, context="gather"),
    case("cp2_ring_documents", 2, BF16, *MASKED, cp=2, context="ring"),
    case("cp2_gather_documents", 2, FP32, *MASKED, cp=2, context="gather"),
    case("cp2_recompute_selective", 2, FP32, *recompute("selective"), cp=2),
]

PIPELINE = [
    case("pp2_1f1b", 2, FP32, pp=2),
    case("pp2_gpipe", 2, BF16, pp=2, pipeline="gpipe"),
    case("pp2_zb", 2, FP32, micro=1, pp=2, pipeline="zb-h1"),
    case("pp2_interleaved", 2, BF16, pp=2, pipeline="interleaved", virtual_stages=2),
    case("pp4_1f1b", 4, BF16, micro=1, pp=4),
    case("pp4_zb", 4, BF16, micro=1, pp=4, pipeline="zb-h1"),
    case("pp2_partition_1_3", 2, FP32, micro=1, pp=2, partition=[1, 3]),
    case("pp2_tied", 2, BF16, model=TIED, pp=2),
    case("pp2_recompute_2_layers", 2, FP32, *recompute("full", "memory.recompute_layers=2"),
         pp=2),
]

COMBINED = [
    case("tp2_pp2", 4, BF16, tp=2, pp=2),
    case("tp2_cp2", 4, FP32, tp=2, cp=2),
    case("pp2_dp2_zero1", 4, FP32, micro=1, pp=2, zero=1),
    case("pp2_dp2_zero3", 4, BF16, micro=1, pp=2, zero=3),
    case("tp2_dp2_zero1_lamb_no_masters", 4, BF16, *LAMB, *NO_MASTERS, model=TIED, tp=2, zero=1),
    case("tp2_dp2_zero3", 4, BF16, tp=2, zero=3),
    case("cp2_dp2_zero3", 4, FP32, cp=2, zero=3),
    case("tp2_pp2_dp2", 8, BF16, micro=1, tp=2, pp=2),
    case("tp2_pp2_cp2", 8, FP32, tp=2, pp=2, cp=2),
    case("tp2_cp2_dp2", 8, BF16, tp=2, cp=2, zero=2),
    case("pp2_cp2_dp2", 8, FP32, micro=1, pp=2, cp=2, context="gather"),
]


def stage(ranks, compute, *sets, micro=2, exit=0, nodes=0, **keys):
    return Stage(ranks, [*settings(micro, compute, keys), *sets], exit, nodes)


def spike(action):
    return on_bad_step(action, "run.steps=8", "resilience.spike_sigmas=6",
                       "resilience.spike_window=8", fault(6, "spike"))


def rollback(step):
    return on_bad_step("rollback", "run.steps=8", "resilience.rollback_steps=2",
                       "checkpoint.every=2", fault(step, "nonfinite_loss"))


EVENTS = [
    Case("resume_same_layout_bf16", [
        stage(2, BF16, "run.stop_after=3", zero=1), stage(2, BF16, zero=1)]),
    Case("resume_tp2dp2_pp2_cp2_fp32", [
        stage(4, FP32, "run.stop_after=2", tp=2),
        stage(2, FP32, "run.stop_after=4", pp=2),
        stage(2, FP32, cp=2)]),
    Case("resume_dp4zero3_tp2_one_bf16", [
        stage(4, BF16, "run.stop_after=2", micro=1, zero=3),
        stage(2, BF16, "run.stop_after=4", tp=2),
        stage(1, BF16)]),
    Case("rewarm_and_decay_fp32", [
        stage(1, FP32, "run.stop_after=2"),
        stage(2, FP32, "run.stop_after=4", 'schedule.continue="rewarm"', "run.steps=8", pp=2),
        stage(1, FP32, 'schedule.continue="decay"')]),
    Case("init_from_a_run_bf16", [
        stage(1, BF16, 'run.dir="first"', "run.steps=3"),
        stage(2, BF16, 'init.weights="first"', "run.seed=5", tp=2)]),
    Case("bad_step_stops_fp32", [
        stage(1, FP32, "checkpoint.every=2", fault(4, "nonfinite_loss"), exit=1)]),
    Case("bad_step_skipped_bf16", [
        stage(2, BF16, *on_bad_step("skip", fault(4, "nonfinite_gradient")), zero=2)]),
    Case("spike_skipped_fp32", [stage(2, FP32, *spike("skip"), tp=2)]),
    Case("rollback_fp32", [stage(1, FP32, *rollback(5))]),
    Case("rollback_bf16", [stage(4, BF16, *rollback(6), pp=2)]),
    # Ends by a bad step after step 5, which is in memory only; the second start goes on there.
    Case("peer_memory_bf16", [
        stage(2, BF16, "resilience.peer_memory_every=1", "checkpoint.every=3", "run.steps=8",
              fault(6, "nonfinite_loss"), exit=1, nodes=2),
        stage(2, BF16, "resilience.peer_memory_every=1", "checkpoint.every=3", "run.steps=8",
              nodes=2)]),
]

# Each form of a family: its name, the family, and what it changes.
FORMS = [
    ("gpt2", "gpt2", {}), ("bert", "bert", {}), ("neox_parallel", "gpt_neox", {}),
    ("neox_serial", "gpt_neox", {"use_parallel_residual": False}), ("qwen2", "qwen2", {}),
    ("qwen3", "qwen3", {}), ("mistral", "mistral", {}), ("gemma3", "gemma3", {}),
    ("olmo2", "olmo2", {}), ("olmo3", "olmo3", {}), ("granite", "granite", {}),
    ("smollm3", "smollm3", {}), ("mixtral", "mixtral", {}), ("qwen3_moe", "qwen3_moe", {})]
EXAMPLES = 'data.train=[{path="../data/bert"}]'


def of_form(name, family, changes):
    sets = [EXAMPLES] if family == "bert" else []

    def made(kind, ranks, compute, *more, **keys):
        return Case(f"{name}_{kind}_{compute}", [stage(ranks, compute, *sets, *more, **keys)],
                    changes, family)

    yield made("single", 1, FP32)
    yield made("single_composite", 1, BF16, COMPOSITE)
    yield made("single_recompute_selective", 1, BF16, *recompute("selective"))
    yield made("tp2", 2, BF16, tp=2, sequence=False)
    yield made("tp2_sequence", 2, FP32, tp=2)
    yield made("pp2", 2, FP32, pp=2)
    yield made("dp2_zero3", 2, BF16, zero=3)
    yield Case(f"{name}_handed_over_{BF16}", [
        stage(2, BF16, *sets, "run.stop_after=3", tp=2), stage(2, BF16, *sets, zero=3)],
        changes, family, handed_over=True)


FAMILY = [
    *(case for form in FORMS for case in of_form(*form)),
    Case("llama_handed_over_bf16", [stage(2, BF16, "run.stop_after=3", tp=2),
                                    stage(2, BF16, zero=3)], handed_over=True)]

CASES = [*ONE_RANK, *DATA, *TENSOR, *CONTEXT, *PIPELINE, *COMBINED, *EVENTS, *FAMILY]
