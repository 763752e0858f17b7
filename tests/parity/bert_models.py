"""Small BERTs made by transformers, batches for them, and their gradients under the names that
transformers' model has."""

import numpy as np
import torch
from bert_rows import VOCABULARY
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

SETTINGS = dict(
    vocab_size=VOCABULARY, hidden_size=96, intermediate_size=160, num_hidden_layers=3,
    num_attention_heads=6, max_position_embeddings=128, initializer_range=0.05,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MODELS = {
    "pretraining": (BertForPreTraining, {}),
    "masked": (BertForMaskedLM, {}),
    "tanh": (BertForPreTraining, dict(hidden_act="gelu_new", type_vocab_size=3)),
    # The padding token occurs often here: its look-ups have no gradient.
    "padding": (BertForPreTraining, dict(pad_token_id=6)),
}


def make_bert(name, seed=0, **changes):
    kind, settings = MODELS[name]
    torch.manual_seed(seed)
    config = BertConfig(**{**SETTINGS, **settings, **changes})
    config._attn_implementation = "eager"
    model = kind(config).to(torch.float32)
    # Weights and biases get other values: a norm weight of one would hide a missing or doubled
    # product, and a bias of zero a missing sum.
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "LayerNorm" in key or key.endswith("bias"):
                value.add_(torch.randn_like(value) * 0.1)
    return model


def fields_of(arrays, rows=slice(None)):
    """The arguments with which transformers' models are called."""
    labels = np.full(arrays["input_ids"].shape, -100, np.int64)
    for row, positions in enumerate(arrays["masked_lm_positions"]):
        chosen = positions[positions > 0]
        labels[row, chosen] = arrays["masked_lm_ids"][row, :len(chosen)]
    fields = {"input_ids": arrays["input_ids"], "token_type_ids": arrays["segment_ids"],
              "attention_mask": arrays["input_mask"], "labels": labels,
              "next_sentence_label": arrays["next_sentence_labels"]}
    return {name: torch.tensor(values[rows]).long() for name, values in fields.items()}


def call(model, fields):
    """Returns the logits of all tokens, the logits of sequences or None, and the loss of each
    term."""
    inputs = {n: fields[n] for n in ("input_ids", "token_type_ids", "attention_mask")}
    out = model(**inputs)
    entropy = torch.nn.functional.cross_entropy
    if isinstance(model, BertForMaskedLM):
        logits, relation = out.logits, None
    else:
        logits, relation = out.prediction_logits, out.seq_relationship_logits
    losses = [entropy(logits.view(-1, logits.shape[-1]), fields["labels"].view(-1))]
    if relation is not None:
        losses.append(entropy(relation, fields["next_sentence_label"]))
    return logits, relation, losses


def as_bert(tensors):
    """This program's tensors under the names of transformers' model. Biases of queries, keys and
    values are joined, since the gradient of a bias of keys is rounding only."""
    names = {"attention.q_proj": "attention.self.query", "attention.k_proj": "attention.self.key",
             "attention.v_proj": "attention.self.value", "attention.o_proj": "attention.output.dense",
             "up_proj": "intermediate.dense", "down_proj": "output.dense"}
    found = {}
    for key, value in tensors.items():
        for here, theirs in names.items():
            if f".{here}." in key:
                key = key.replace(here, theirs)
                break
        found[key] = value
    return joined(found)


def joined(tensors):
    found = {}
    for key, value in sorted(tensors.items()):
        for part in ("query", "key", "value"):
            key = key.replace(f"self.{part}.bias", "self.bias")
        found[key] = torch.cat([found[key], value]) if key in found else value
    return found
