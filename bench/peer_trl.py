"""The side of TRL in bench_tuning.py; prints one JSON object. Run in its own process.

    peer_trl.py chats MODEL CHATS --length 2048     from JSON lines to packed rows, by two processes
    peer_trl.py dpo MODEL PAIRS --batch 4 --steps 4 [--bf16-weights]     steps with stored references

MODEL is a directory; PAIRS holds [prompt, chosen, rejected] as ids."""

import argparse
import json
import resource
import tempfile
import time


def settings(place, **more):
    return dict(output_dir=place, report_to=[], save_strategy="no", use_cpu=True, gradient_checkpointing=False,
                disable_tqdm=True, train_sampling_strategy="sequential") | more


def chats(options, place):
    import datasets
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8,
                                         num_hidden_layers=1, num_attention_heads=1))
    args = SFTConfig(**settings(place, max_length=options.length, packing=True, assistant_only_loss=True,
                                dataset_num_proc=2))
    begin = time.perf_counter()
    read = datasets.load_dataset("json", data_files=options.data, split="train", cache_dir=place)
    rows = SFTTrainer(model=model, args=args, processing_class=tokenizer, train_dataset=read).train_dataset
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "rows": len(rows), "tokens": sum(map(sum, rows["seq_lengths"])),
            "targets": sum(label != -100 for row in rows["labels"] for label in row)}


def dpo(options, place):
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import DPOConfig, DPOTrainer

    class OfReadyIds(DPOTrainer):
        def _prepare_dataset(self, dataset, *arguments, **named):
            return dataset

    class Times(TrainerCallback):
        seconds = []

        def on_step_begin(self, *arguments, **named):
            self.begin = time.perf_counter()

        def on_step_end(self, *arguments, **named):
            self.seconds.append(time.perf_counter() - self.begin)

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(10)}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1")
    with open(options.data) as file:
        pairs = Dataset.from_list([{"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
                                   for prompt, chosen, rejected in json.load(file)])
    dtype = torch.bfloat16 if options.bf16_weights else torch.float32
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
    args = DPOConfig(**settings(place, max_steps=options.steps, per_device_train_batch_size=options.batch, bf16=True,
                                precompute_ref_log_probs=True, max_length=options.length, logging_steps=1))
    trainer = OfReadyIds(model=model, args=args, processing_class=tokenizer, train_dataset=pairs,
                         callbacks=[Times()])
    trainer.train()
    return {"step_times": Times.seconds, "losses": [log["loss"] for log in trainer.state.log_history if "loss" in log]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["chats", "dpo"])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--bf16-weights", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = {"chats": chats, "dpo": dpo}[options.part](options, place)
    print(json.dumps(found | {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
