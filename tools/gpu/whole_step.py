"""Seconds of a training step, longhaul's or (--peer) transformers', of one shape on a device."""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

# hidden, inner, layers, heads, key heads, vocabulary; of Qwen2.5 where the name says so, with
# one table for embedding and head; the 8b has 8 of its 32 layers
SHAPES = {"8b": (4096, 14336, 8, 32, 8, 128256), "8b-whole": (4096, 14336, 32, 32, 8, 128256),
          "0.5b": (1024, 4096, 24, 16, 8, 32000), "1.5b": (2048, 5632, 24, 16, 8, 32000),
          "tiny": (64, 96, 2, 4, 2, 320),
          "qwen2.5-0.5b": (896, 4864, 24, 14, 2, 151936),
          "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 151936)}
TEXT = """
[run]
dir = "{dir}/run"
steps = 100000
device = "{device}"
[model]
config = "{dir}/model"
[data]
seq_len = {seq_len}
train = [{{ synthetic = 1000 }}]
[batch]
global_size = {size}
micro_size = {micro}
[optimizer]
lr = 1e-4
[schedule]
kind = "constant"
[checkpoint]
every = 0
[precision]
compute = "bf16"
"""
LORA = """
[init]
weights = "{dir}/model"
[adapter]
kind = "lora"
rank = {rank}
alpha = {rank}
"""


def config_of(options):
    hidden, inner, layers, heads, key_heads, vocabulary = SHAPES[options.shape]
    qwen = options.shape.startswith("qwen")
    return {
        "architectures": ["Qwen2ForCausalLM" if qwen else "LlamaForCausalLM"],
        "model_type": "qwen2" if qwen else "llama",
        "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": key_heads, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
        "initializer_range": 0.02, "tie_word_embeddings": qwen}


def tell(options, seconds, peak):
    median = statistics.median(seconds)
    tokens = options.seq_len * options.micro_size * options.accumulate
    print(f"result: {median:.3f} s, {tokens / median:.0f} tokens/s, {peak / 2**30:.1f} GiB")


def ours(options):
    folder = options.dir / "model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(options)))
    path = options.dir / "run.toml"
    path.write_text(TEXT.format(dir=options.dir, device=options.device,
                                seq_len=options.seq_len, micro=options.micro_size,
                                size=options.micro_size * options.accumulate))
    if options.lora:
        if not list(folder.glob("*.safetensors")):
            random_model(options).save_pretrained(folder)
        path.write_text(path.read_text() + LORA.format(dir=options.dir, rank=options.lora))
    records = steps_of(options, path)
    tell(options, [record["step_time_s"] for record in records[2:]],
         max(record["memory_peak_bytes"] for record in records))


def steps_of(options, path):
    """The records of so many steps; what a run saves at its end (34 GB of the 8B shape) is
    not waited for."""
    found = options.dir / "run" / "metrics.jsonl"
    shutil.rmtree(found.parent, ignore_errors=True)
    run = subprocess.Popen([options.longhaul, "train", path])
    try:
        limit = time.monotonic() + 600
        while time.monotonic() < limit:
            ended = run.poll()
            text = found.read_text() if found.exists() else ""
            records = [json.loads(line) for line in text.splitlines(True) if line[-1:] == "\n"]
            records = [record for record in records if "grad_norm" in record]
            if len(records) >= options.steps:
                return records[:options.steps]
            if ended is not None:
                sys.exit(f"the run ended with {ended} after {len(records)} steps")
            time.sleep(0.05)
        sys.exit(f"fewer than {options.steps} steps in 600 s")
    finally:
        run.kill()
        run.wait()


def random_model(options):
    """A model of transformers in bf16."""
    import torch
    import transformers
    of = config_of(options)
    config = transformers.AutoConfig.for_model(
        **{k: v for k, v in of.items() if k != "architectures"})
    torch.manual_seed(1)
    with torch.device(options.device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def peer(options):
    try:
        import torch
        model = random_model(options)
        if options.lora:
            from peft import LoraConfig, get_peft_model
            model = get_peft_model(model, LoraConfig(
                task_type="CAUSAL_LM", r=options.lora, lora_alpha=options.lora,
                target_modules="all-linear"), autocast_adapter_dtype=False)
    except ImportError as error:
        print(error)
        sys.exit(77)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    run = torch.compile(model) if options.compile else model
    shape = (options.micro_size, options.seq_len)
    seconds = []
    for _ in range(options.steps):
        ids = torch.randint(model.config.vocab_size, shape, device=options.device)
        begun = time.perf_counter()
        for _ in range(options.accumulate):
            run(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if options.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else 0
    tell(options, seconds[2:], peak)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--longhaul")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", choices=sorted(SHAPES), required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--micro-size", type=int, required=True)
    parser.add_argument("--accumulate", type=int, default=1, help="micro batches in a step")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lora", type=int, default=0, help="the rank of adapters, which alone are trained")
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    (peer if options.peer else ours)(options)


if __name__ == "__main__":
    main()
