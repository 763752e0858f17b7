"""Families, masks, optimizers and number formats in short trainings: a device against the CPU.

One line each with the largest relative difference of a loss and of a gradient norm; "result:"
with the worst of fp32 and of bf16; exits with 1 where one is above its tolerance.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import subprocess
import sys

from train import MODEL, command_of, records

FAMILIES = {
    "llama": MODEL,
    "qwen2": {**MODEL, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {**MODEL, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
              "head_dim": 32, "attention_bias": False, "tie_word_embeddings": True},
    "mistral": {**MODEL, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
                "sliding_window": 24},
    "gemma3": {**{k: v for k, v in MODEL.items() if k != "rope_theta"},
               "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
               "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24,
               "sliding_window": 24, "sliding_window_pattern": 2},
    "olmo2": {**MODEL, "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"},
    "granite": {**MODEL, "architectures": ["GraniteForCausalLM"], "model_type": "granite",
                "embedding_multiplier": 6.0, "attention_multiplier": 0.2,
                "residual_multiplier": 0.4, "logits_scaling": 2.0},
    "smollm3": {**MODEL, "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3",
                "no_rope_layers": [1, 0], "pad_token_id": 0},
    "mixtral": {**MODEL, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2,
                "output_router_logits": True, "router_aux_loss_coef": 0.02},
    "qwen3_moe": {**MODEL, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                  "head_dim": 32, "num_experts": 16, "num_experts_per_tok": 4,
                  "moe_intermediate_size": 64, "norm_topk_prob": True,
                  "output_router_logits": True},
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 320,
             "n_embd": 128, "n_layer": 2, "n_head": 8, "n_positions": 256, "n_ctx": 256,
             "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0,
             "attn_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "initializer_range": 0.05},
    "gpt_neox": {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
                 "vocab_size": 320, "hidden_size": 128, "intermediate_size": 512,
                 "num_hidden_layers": 2, "num_attention_heads": 8, "rotary_pct": 0.25,
                 "rotary_emb_base": 10000, "max_position_embeddings": 256,
                 "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True,
                 "tie_word_embeddings": False, "initializer_range": 0.05,
                 "attention_dropout": 0.0, "hidden_dropout": 0.0}}
TABLE = json.loads((pathlib.Path(__file__).resolve().parents[2] / "tests/families.json").read_text())
for model_type, family in TABLE.items():  # other decoders, as in the tests of layouts
    if family["decoder"] and model_type not in [model["model_type"] for model in FAMILIES.values()]:
        own = family["layouts"]
        base = {key: value for key, value in MODEL.items() if key not in own.get("without", ())}
        FAMILIES[model_type] = {**base, "architectures": [family["architecture"]], "head_dim": 16,
                                "model_type": model_type, "num_hidden_layers": 4, "pad_token_id": 0,
                                **own["config"]}
DOCUMENTS = "data.document_mask=true"
# name, family, settings
CASES = [(f"{family} {compute}", family, [f'precision.compute="{compute}"'])
         for family in FAMILIES for compute in ("fp32", "bf16")] + [
    ("documents fp32", "llama", [DOCUMENTS, 'precision.compute="fp32"']),
    ("documents bf16", "llama", [DOCUMENTS]),
    ("documents, norms of heads", "qwen3", [DOCUMENTS]),
    ("bf16 states", "llama", ['precision.master="bf16_sr"', 'precision.moments="bf16"']),
    ("bf16 gradients", "llama", ['precision.gradients="bf16"']),
    ("lamb", "llama", ['optimizer.kind="lamb"']),
    ("selective", "llama", ['memory.recompute="selective"']),
    ("zero 3", "llama", ["parallel.zero=3"])]
# As far as seen on an H200, ten times: losses 4e-7 and 3.4e-4.
TOLERANCES = {"fp32": 4e-6, "bf16": 3e-3}


def documents(path):
    chosen = random.Random(1)
    with path.open("w") as file:
        for _ in range(800):
            ids = [chosen.randrange(2, 320) for _ in range(chosen.randrange(5, 90))]
            file.write(json.dumps({"input_ids": ids}) + "\n")


def train(options, case, role, device):
    """Losses and gradient norms of the steps."""
    name, family, sets = case
    name = f"{name} {role}".replace(" ", "_").replace(",", "")
    if DOCUMENTS in sets:
        sets = [*sets, f'data.train=[{{ path = "{options.runs / "documents.jsonl"}" }}]']
    done = subprocess.run(command_of(options, name, device, sets, FAMILIES[family]),
                          capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        raise RuntimeError(f"{device}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    found = [(r["loss"], r["grad_norm"]) for r in records(options.runs / name)]
    if len(found) != options.steps:
        raise RuntimeError(f"{device}: {len(found)} steps, not {options.steps}")
    return found


def differences(options, case):
    there = train(options, case, "there", options.device)
    here = train(options, case, "here", "cpu")
    return [max(abs(a[i] - b[i]) / b[i] for a, b in zip(there, here)) for i in (0, 1)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--longhaul", required=True)
    parser.add_argument("--runs", type=pathlib.Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    options.runs = options.runs.resolve()
    options.runs.mkdir(parents=True)
    documents(options.runs / "documents.jsonl")
    worst = dict.fromkeys(TOLERANCES, 0.0)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        waited = [(case, pool.submit(differences, options, case)) for case in CASES]
        for case, result in waited:
            kind = "fp32" if case[0].endswith("fp32") else "bf16"
            try:
                loss, norm = result.result()
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{case[0]:28} {error}", flush=True)
                failed += 1
                continue
            worst[kind] = max(worst[kind], loss)
            word = "" if loss <= TOLERANCES[kind] else "  TOO FAR"
            print(f"{case[0]:28} loss off by {loss:.1e}, norm {norm:.1e}{word}", flush=True)
    print(f"result: {len(CASES)} trainings, {failed} failed, losses off by "
          f"{worst['fp32']:.1e} (fp32) and {worst['bf16']:.1e} (bf16) at most")
    if failed or any(worst[kind] > limit for kind, limit in TOLERANCES.items()):
        sys.exit(1)


if __name__ == "__main__":
    main()
