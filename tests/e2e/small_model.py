"""A small Hugging Face model directory and real text, as a user would have downloaded them.

The import of torch and transformers takes a core some seconds, so only what makes or reads a model
imports them."""

import gzip
import json
import pydoc_data.topics

import numpy
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 600
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def documents():
    """A few hundred pieces of English prose: Python's own help texts."""
    pieces = []
    for _, text in sorted(pydoc_data.topics.topics.items()):
        part = ""
        for paragraph in text.split("\n\n"):
            part += paragraph + "\n\n"
            if len(part) > 1200:
                pieces.append(part)
                part = ""
        if part.strip():
            pieces.append(part)
    return pieces[:240]


def make_tokenizer(directory, texts, vocabulary=VOCABULARY):
    """A byte-level BPE with Llama 3's split pattern and its rule of one BOS in front."""
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<|begin_of_text|>", "<|end_of_text|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    assert tokenizer.get_vocab_size() == vocabulary
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin_of_text|>",
                            eos_token="<|end_of_text|>").save_pretrained(directory)


def make_model(directory, dtype="float32", tokenizer_texts=None, **changes):
    """Makes a model directory: random weights in several shards, config, generation config and
    tokenizer."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    config = dict(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        rms_norm_eps=1e-5, initializer_range=0.05, bos_token_id=0, eos_token_id=1,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    model = LlamaForCausalLM(LlamaConfig(**{**config, **changes})).to(getattr(torch, dtype))
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=1, do_sample=True,
                                               temperature=0.6, top_p=0.9)
    model.save_pretrained(directory, max_shard_size="150KB")
    make_tokenizer(directory, tokenizer_texts or documents())


def write_corpus(directory):
    """Writes half the documents as text files and half as JSON lines in .gz files."""
    directory.mkdir()
    pieces = documents()
    half = len(pieces) // 2
    for i, text in enumerate(pieces[:half]):
        (directory / f"{i:03}.txt").write_text(text)
    for i, part in enumerate([pieces[half:half + half // 2], pieces[half + half // 2:]]):
        with gzip.open(directory / f"part-{i}.jsonl.gz", "wt") as file:
            for text in part:
                file.write(json.dumps({"id": i, "text": text}) + "\n")


def validations(run_dir):
    """Validation losses by step."""
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").open()]
    return {r["step"]: r for r in records if "validation" in r}


def stored_ids(path, width):
    """Reads tokens of `width` little-endian bytes each."""
    raw = numpy.fromfile(path, dtype=numpy.uint8).reshape(-1, width)
    return numpy.pad(raw, ((0, 0), (0, 4 - width))).view("<u4").ravel()


def sequences(store, seq_len):
    """The sequences of a token store as tokens and targets."""
    import torch
    info = json.loads((store / "store.json").read_text())
    tokens = numpy.concatenate([stored_ids(path, info["token_bytes"])
                                for path in sorted(store.glob("tokens_*.bin"))])
    rows = torch.tensor(tokens.astype(numpy.int64))
    count = (len(rows) - 1) // seq_len
    return (rows[:count * seq_len].view(count, seq_len),
            rows[1:count * seq_len + 1].view(count, seq_len))


def transformers_loss(directory, store, seq_len, count):
    """The mean loss of transformers' model over the first `count` sequences."""
    import torch
    from transformers import LlamaForCausalLM
    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokens, targets = (part[:count] for part in sequences(store, seq_len))
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(),
                                             targets.flatten()).item()


TRAINING = """
[run]
dir = "runs/mine"
steps = 40
device = "cpu"
threads = 1
[model]
config = "models/small"
[init]
weights = "models/small"
[data]
seq_len = 64
train = [{ path = "data/mine" }]
validation = [{ name = "mine", path = "data/mine-val" }]
[batch]
global_size = 16
micro_size = 8
[optimizer]
lr = 1e-2
[precision]
compute = "fp32"
[validation]
every = 20
batches = 2
"""
