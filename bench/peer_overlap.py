"""The torch side of bench_overlap.py: one rank of data-parallel training of a random Llama
of transformers, by DDP or FSDP2 over gloo, or alone; rank 0 prints one JSON object.
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment."""

import argparse
import json
import os
import time


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("config", help="config.json of the model")
    parser.add_argument("--kind", choices=["alone", "ddp", "fsdp2"], required=True)
    parser.add_argument("--micro", type=int, required=True, help="sequences of a micro batch")
    parser.add_argument("--accumulation", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    return parser.parse_args()


def wrap(model, kind):
    if kind == "ddp":
        from torch.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    if kind == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model


def sync_only_last(model, kind, last):
    """Reduces once a step with DDP; FSDP2 reduces every micro batch, as zero 3 does."""
    import contextlib
    return model.no_sync() if kind == "ddp" and not last else contextlib.nullcontext()


def main():
    options = parse()
    import torch
    import torch.distributed
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(options.config)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.train()
    if options.kind != "alone":
        torch.distributed.init_process_group("gloo")
    model = wrap(model, options.kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1, fused=True)
    times = []
    for _ in range(options.steps):
        batches = torch.randint(0, config.vocab_size,
                                (options.accumulation, options.micro, options.length))
        begin = time.perf_counter()
        for index, tokens in enumerate(batches):
            with sync_only_last(model, options.kind, index + 1 == len(batches)):
                loss = model(input_ids=tokens, labels=tokens).loss / len(batches)
                loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(time.perf_counter() - begin)
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps({"step_times": times, "versions":
                          f"torch {torch.__version__}, transformers {transformers.__version__}"}))
    if options.kind != "alone":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
