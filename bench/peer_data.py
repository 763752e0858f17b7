"""The pipeline of get_dataset.py on JSON lines: datasets, tokenizers, group_texts,
save_to_disk. One line of JSON: seconds of each stage, tokens, where it lies."""

import argparse
import itertools
import json
import time

import datasets
from transformers import PreTrainedTokenizerFast

datasets.disable_progress_bars()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--block", type=int, default=2048)
    options = parser.parse_args()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{options.tokenizer}/tokenizer.json")

    def group(batch):
        joined = {key: list(itertools.chain(*batch[key])) for key in batch}
        length = len(joined["input_ids"]) // options.block * options.block
        rows = {key: [values[i:i + options.block] for i in range(0, length, options.block)]
                for key, values in joined.items()}
        rows["labels"] = rows["input_ids"].copy()
        return rows

    begin = time.perf_counter()
    texts = datasets.load_dataset("json", data_files=options.corpus, split="train",
                                  cache_dir=options.out + ".cache")
    loaded = time.perf_counter()
    tokens = texts.map(lambda batch: tokenizer(batch["text"], return_token_type_ids=False),
                       batched=True, remove_columns=texts.column_names)
    tokenized = time.perf_counter()
    blocks = tokens.map(group, batched=True)
    grouped = time.perf_counter()
    blocks.save_to_disk(options.out)
    saved = time.perf_counter()
    print(json.dumps({"seconds": saved - begin, "load": loaded - begin,
                      "tokenize": tokenized - loaded, "group": grouped - tokenized,
                      "save": saved - grouped, "tokens": len(blocks) * options.block}))


if __name__ == "__main__":
    main()
