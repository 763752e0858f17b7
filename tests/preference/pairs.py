"""Pairs of a chosen and a rejected answer as ready ids, a store of them, and the losses of pairs in
torch, as TRL 1.16 defines them."""

import json
import math
import random

BETA, SMOOTHING, GAMMA = 0.3, 0.15, 0.7
LOSSES = ["sigmoid", "ipo", "hinge", "robust", "apo_zero", "sigmoid_norm", "simpo", "orpo"]
FIGURES = ["rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies",
           "logps/chosen", "logps/rejected"]
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 301,
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "initializer_range": 0.1, "tie_word_embeddings": False, "torch_dtype": "float32",
}
ADAM = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8}
DECAY, CLIP = 0.1, 1.0


def make_pairs(count, seed=3):
    """(prompt, chosen, rejected) as ids; all lengths differ."""
    draw = random.Random(seed)

    def ids(least, most):
        return [draw.randrange(3, MODEL["vocab_size"]) for _ in range(draw.randint(least, most))]
    return [(ids(2, 6), ids(2, 9), ids(3, 12)) for _ in range(count)]


def sides_of(pairs):
    """Each side as ids and the number of its prompt's ids, in the order of a store."""
    return [(prompt + answer, len(prompt)) for prompt, *answers in pairs for answer in answers]


def make_store(run, folder, pairs):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]}
             for ids, prompt in sides_of(pairs)]
    (folder / "ids.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("longhaul", "data", "build", folder / "ids.jsonl", "--field", "input_ids",
        "--vocab-size", MODEL["vocab_size"],
        "--out", folder / "store")
    record = folder / "store/store.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "kind": "pairs"}))
    return folder / "store"


def decays(name):
    return "norm" not in name


class Peer:
    """A model of transformers that learns from pairs."""

    def __init__(self, directory, pairs, loss):
        import torch
        from transformers import LlamaForCausalLM
        self.torch, self.loss = torch, loss
        self.model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self.pairs = sides_of(pairs)
        named = list(self.model.named_parameters())
        self.optimizer = torch.optim.AdamW([
            {"params": [p for name, p in named if decays(name)], "weight_decay": DECAY},
            {"params": [p for name, p in named if not decays(name)], "weight_decay": 0.0}], **ADAM)
        length = max(len(ids) for ids, _ in self.pairs)
        self.ids = torch.zeros(len(self.pairs), length, dtype=torch.long)
        self.real = torch.zeros(len(self.pairs), length)
        self.answer = torch.zeros(len(self.pairs), length)
        for i, (ids, prompt) in enumerate(self.pairs):
            self.ids[i, :len(ids)] = torch.tensor(ids)
            self.real[i, :len(ids)] = 1
            self.answer[i, prompt:len(ids)] = 1
        with torch.no_grad():
            self.reference = (self.log_probs() * self.answer[:, 1:]).sum(1)

    def log_probs(self):
        """log p of each id but the first, given those before it."""
        logits = self.model(self.ids, attention_mask=self.real).logits[:, :-1]
        return logits.log_softmax(-1).gather(2, self.ids[:, 1:, None]).squeeze(2)

    def step(self):
        """Does a step; returns its figures."""
        torch, loss = self.torch, self.loss
        sigmoid = torch.nn.functional.logsigmoid
        tokens = self.log_probs()
        lengths = self.answer[:, 1:].sum(1)
        sums = (tokens * self.answer[:, 1:]).sum(1)
        alone = loss in ("simpo", "orpo")
        logps = sums / lengths if alone else sums
        ratio = logps if alone else sums - self.reference
        c, r = ratio[0::2], ratio[1::2]
        if loss in ("ipo", "sigmoid_norm"):
            c, r = c / lengths[0::2], r / lengths[1::2]
        x = BETA * (c - r)
        if loss == "hinge":
            each = torch.relu(1 - x)
        elif loss == "ipo":
            each = (c - r - 1 / (2 * BETA)) ** 2
        elif loss == "robust":
            each = ((SMOOTHING - 1) * sigmoid(x) + SMOOTHING * sigmoid(-x)) / (1 - 2 * SMOOTHING)
        elif loss == "apo_zero":
            each = 1 - torch.sigmoid(BETA * c) + torch.sigmoid(BETA * r)
        elif loss == "simpo":
            x = x - GAMMA
            each = -sigmoid(x) * (1 - SMOOTHING) - sigmoid(-x) * SMOOTHING
        elif loss == "orpo":
            odds = (c - r) - (torch.log1p(-torch.exp(c)) - torch.log1p(-torch.exp(r)))
            each = -BETA * sigmoid(odds)
        else:
            each = -sigmoid(x)
        total = each.mean()
        if loss == "orpo":
            chosen = self.real[0::2, 1:]
            total = total - (tokens[0::2] * chosen).sum() / chosen.sum()
        self.optimizer.zero_grad()
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        rewards = BETA * ratio.detach()
        figures = [rewards[0::2].mean(), rewards[1::2].mean(), (rewards[0::2] - rewards[1::2]).mean(),
                   (rewards[0::2] > rewards[1::2]).float().mean(), logps[0::2].mean(),
                   logps[1::2].mean()]
        return {"loss": total.item(), "grad_norm": norm.item(),
                **{name: value.item() for name, value in zip(FIGURES, figures)}}


def apart(a, b):
    """How far two figures are apart, relative to the larger, or to 1 where both are small."""
    return abs(a - b) / max(1.0, abs(a), abs(b)) if math.isfinite(a + b) else math.inf
