"""The transformers side of bench_train.py: trains a random model on random tokens and
prints one JSON object. Run in its own process, so that memory and start-up are its own."""

import argparse
import json
import resource
import time


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("config", help="config.json of the model")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument(
        "--precision",
        choices=["autocast", "master", "fp32", "base"],
        default="autocast",
        help="autocast: fp32 weights, bf16 autocast (what Trainer(bf16=True) does); "
        "master: bf16 weights, fp32 copy and gradients for AdamW; fp32: nothing in bf16; "
        "base: bf16 weights, of which none is trained, fp32 adapters, bf16 autocast",
    )
    parser.add_argument("--lora", type=int, help="trains adapters of peft of this rank, and no weights")
    parser.add_argument("--experts", help="transformers' form of experts, if not its default")
    return parser.parse_args()


def random_batch(torch, config, batch, length):
    tokens = torch.randint(0, config.vocab_size, (batch, length))
    if config.model_type != "bert":
        return {"input_ids": tokens, "labels": tokens}
    every = torch.arange(length) % 7 == 3  # about 15 %
    return {
        "input_ids": tokens,
        "token_type_ids": (torch.arange(length) >= length // 2).long().expand(batch, -1),
        "attention_mask": torch.ones_like(tokens),
        "labels": torch.where(every, tokens, -100),
        "next_sentence_label": torch.randint(0, 2, (batch,)),
    }


def main():
    options = parse()
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(options.config)
    config.use_cache = False
    kind = transformers.AutoModelForCausalLM
    if config.model_type == "bert":
        kind = transformers.AutoModelForPreTraining
    forms = {"experts_implementation": options.experts} if options.experts else {}
    model = kind.from_config(config, dtype=torch.float32, **forms)
    model.train()
    if options.precision == "base":
        model.to(torch.bfloat16)
    if options.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(
            task_type="CAUSAL_LM", r=options.lora, lora_alpha=2 * options.lora, target_modules="all-linear"))
    trained = [p for p in model.parameters() if p.requires_grad]
    masters = trained
    if options.precision == "master":
        masters = [p.detach().clone().requires_grad_() for p in trained]
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(
        masters, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    forward = torch.compile(model) if options.compile else model
    batch = random_batch(torch, config, options.batch, options.length)
    autocast = options.precision in ("autocast", "base")
    times, losses = [], []
    first = None
    for _ in range(options.steps):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = forward(**batch).loss
        loss.backward()
        if options.precision == "master":
            for master, parameter in zip(masters, trained):
                master.grad = parameter.grad.float()
                parameter.grad = None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if options.precision == "master":
            with torch.no_grad():
                for master, parameter in zip(masters, trained):
                    parameter.copy_(master)
        losses.append(loss.item())
        times.append(time.perf_counter() - begin)
        first = first or time.time()
    print(
        json.dumps(
            {
                "step_times": times,
                "losses": losses,
                "first_step_at": first,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
                "threads": torch.get_num_threads(),
            }
        )
    )


if __name__ == "__main__":
    main()
