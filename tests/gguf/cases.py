"""Small models of each architecture of llama.cpp, and tokenizers for them."""

import json

import numpy
import sentencepiece
import transformers
from models import BASE, CONFIGS, model_of
from programs import run_program
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

# Each case: a model of tests/families.json and what is changed in it, so that llama.cpp has it.
CASES = {
    "llama": ("llama3_gqa", {}),
    "llama_scaled": ("llama31_scaled", {"intermediate_size": 150}),
    "llama_tied": ("tied", {}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mixtral": ("mixtral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"pad_token_id": 7}),
    "qwen3_moe": ("qwen3_moe", {"norm_topk_prob": True, "mlp_only_layers": []}),
    "gemma3": ("gemma3", {"attention_bias": False, "query_pre_attn_scalar": 24}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", {"rope_parameters": {
        "full_attention": {
            "rope_type": "yarn", "factor": 8.0, "rope_theta": 500000.0, "beta_fast": 16.0,
            "attention_factor": 1.2079441541679836, "original_max_position_embeddings": 64},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}}),
    "granite": ("granite", {}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}),
    "gpt2": ("gpt2", {"n_inner": None, "n_ctx": 512}),
    "pythia": ("pythia", {}),
}

# The split patterns of train-tokenizer, as tokenizer.json writes them.
PATTERNS = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
              r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
             r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
             r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
             r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
             r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
WORDS = ["the cat sat on the mat", "I'll see what they've said in 1984", "naïve café über",
         "def f(x):\n    return x + 12345\n", "  spaces   and\ttabs\n\n", "Привет, мир! 你好世界"]


def make_directory(case, path):
    """Writes the case's model as a Hugging Face directory, and returns its config.json. The form is
    that of a download: this program writes experts one by one, as published files have them."""
    name, changes = CASES[case]
    settings = {**BASE, **CONFIGS[name]}
    family = settings.pop("family")
    settings = {**settings.pop("only", settings), **changes}
    config = getattr(transformers, f"{family}Config")(**settings)
    whole = path.with_name(path.name + "-whole")
    model_of(config).save_pretrained(whole)
    run_program("longhaul", "export", whole, "--out", path)
    config = json.loads((path / "config.json").read_text())
    if config["model_type"] == "gpt_neox":  # as published files have it, and the converter wants it
        config["rotary_pct"] = config["rope_parameters"]["partial_rotary_factor"]
        (path / "config.json").write_text(json.dumps(config))
    return config


def tensors_of(path):
    return load_file(path / "model.safetensors")


# --- what the file has to hold, computed here by itself

LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
}
WHOLE = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm", "gpt_neox.embed_in": "token_embd",
    "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output",
}
EXPERT = {"w1": "gate", "gate_proj": "gate", "w3": "up", "up_proj": "up", "w2": "down",
          "down_proj": "down"}


def turned(value, heads):
    """The rows of each head with those half a head apart side by side."""
    return value.reshape(heads, 2, value.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(
        value.shape)


def expected_tensors(config, tensors):
    """The file's tensors in fp32, by name."""
    kind, found, experts = config["model_type"], {}, {}
    neighbours = kind in ("llama", "mistral", "mixtral", "granite", "smollm3")
    for key, value in tensors.items():
        value = value.float().numpy()
        end = key.rsplit(".", 1)[1]
        stem = key[:-len(end) - 1]
        parts = stem.split(".")
        layer = next((part for part in parts if part.isdigit()), None)
        if layer is None:
            name = WHOLE[stem]
        elif "experts" in parts:
            experts.setdefault((layer, EXPERT[parts[-1]]), {})[int(parts[-2])] = value
            continue
        else:
            name = LAYER[stem.split(f".{layer}.", 1)[1]]
            if kind in ("gemma3_text", "olmo2", "olmo3") and "post_attention" in stem:
                name = "post_attention_norm"
            name = f"blk.{layer}.{name}"
        if neighbours and "q_proj" in stem:
            value = turned(value, config["num_attention_heads"])
        if neighbours and "k_proj" in stem:
            value = turned(value, config["num_key_value_heads"])
        if kind == "gpt2" and value.ndim == 2 and layer is not None:
            value = value.T
        if "query_key_value" in stem:
            heads = config["num_attention_heads"]
            value = value.reshape(heads, 3, -1, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
        if kind == "gemma3_text" and name.endswith("norm"):
            value = value + numpy.float32(1)
        found[f"{name}.{end}"] = value
    for (layer, part), of in experts.items():
        found[f"blk.{layer}.ffn_{part}_exps.weight"] = numpy.stack([of[i] for i in range(len(of))])
    if kind in ("olmo2", "olmo3", "gpt_neox") and "output.weight" not in found:
        found["output.weight"] = found["token_embd.weight"]
    return found


def expected_type(name, shape, dtype):
    if len(shape) == 1 or name in ("position_embd.weight",) or "ffn_gate_inp" in name:
        return "F32"
    return "F16" if dtype == "Q8_0" and shape[-1] % 32 else dtype


# --- tokenizers

def bytes_tokenizer(path, split, ignore_merges=False, begins=False, size=320):
    """A byte-level BPE: `split` is a key of PATTERNS, "gpt2", "digits" or a pattern."""
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if split == "gpt2":
        tokenizer.pre_tokenizer = words
    elif split == "digits":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), words])
    else:
        pattern = Regex(PATTERNS.get(split, split))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(pattern, "isolated"), whole])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(WORDS * 3, trainers.BpeTrainer(
        vocab_size=size - 2, show_progress=False, special_tokens=["<|end|>", "<|begin|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens(["<think>"])
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1",
            special_tokens=[("<|begin|>", 1)])
    path.mkdir(exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "pad_token": "<|end|>", "unk_token": "<|end|>", "clean_up_tokenization_spaces": False,
        "chat_template": "{{ messages[0]['content'] }}"}))
    return tokenizer


def pieces_tokenizer(path, prefix=True, size=316):
    """A SentencePiece model in the form of Llama 2's, without `prefix` of Gemma's, with an added
    token."""
    path.mkdir(exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(WORDS * 20), model_prefix=str(path / "tokenizer"), vocab_size=size,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, hard_vocab_limit=False, minloglevel=2,
        add_dummy_prefix=prefix,
        character_coverage=0.98)
    (path / "tokenizer.vocab").unlink()
    count = sentencepiece.SentencePieceProcessor(str(path / "tokenizer.model")).vocab_size()
    (path / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
        "unk_token": "<unk>", "add_bos_token": True, "legacy": True,
        "added_tokens_decoder": {
            "0": {"content": "<unk>", "special": True}, "1": {"content": "<s>", "special": True},
            "2": {"content": "</s>", "special": True},
            str(count): {"content": "<think>", "special": False}}}))
    return count + 1


def set_half(model_dir, dtype):
    """Stores the model's tensors in another dtype."""
    file = model_dir / "model.safetensors"
    save_file({key: value.to(dtype) for key, value in load_file(file).items()}, file,
              metadata={"format": "pt"})
