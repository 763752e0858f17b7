"""What lm-eval's `hf` model answers to the requests of tasks, written out once more with transformers,
and how lm-eval scores the answers."""

import math

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Peer:
    def __init__(self, directory, max_length):
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.max_length = max_length
        self.prefix = self.tokenizer.bos_token_id
        if self.prefix is None:
            self.prefix = self.tokenizer.eos_token_id

    def encode(self, text, **options):
        if not options and text.startswith(self.tokenizer.decode(self.prefix)):
            options = {"add_special_tokens": False}
        return self.tokenizer.encode(text, **options)

    def score(self, context, continuation):
        """The log-probability of ids behind others, and whether all of them are greedy."""
        assert context and continuation
        ids = (context + continuation)[-(self.max_length + 1):]
        with torch.no_grad():
            logits = self.model(torch.tensor([ids[:-1]])).logits[0, -len(continuation):]
        wanted = torch.tensor(continuation)
        found = logits.log_softmax(-1).gather(1, wanted[:, None]).sum()
        return found.item(), bool((logits.argmax(-1) == wanted).all())

    def answer(self, context, continuation):
        if context == "":
            ids = self.encode(continuation, add_special_tokens=False)
            if ids[0] == self.prefix:
                return self.score(ids[:1], ids[1:])
            return self.score([self.prefix], ids)
        kept = context.rstrip()
        continuation, context = context[len(kept):] + continuation, kept
        before = self.encode(context)
        return self.score(before, self.encode(context + continuation)[len(before):])

    def rolling(self, text):
        ids, total = self.encode(text), 0.0
        for begin in range(0, len(ids), self.max_length):
            end = min(begin + self.max_length, len(ids))
            context = ids[end - self.max_length - 1:begin] if begin else [self.prefix]
            total += self.score(context, ids[begin:end])[0]
        return total


def requests_of(sample):
    return [tuple(request[f"arg_{i}"] for i in range(len(request)))
            for request in sample["arguments"].values()]


def gold_of(sample):
    doc = sample["doc"]
    return doc.get("answer", doc.get("label", 0))


def first_largest(values):
    return max(range(len(values)), key=lambda i: values[i])


def scores_of(sample, answers, delimiter):
    """The metrics of one question."""
    log_probs = [log_prob for log_prob, _ in answers]
    if len(answers) > 1:
        choices = [continuation.removeprefix(delimiter) for _, continuation in requests_of(sample)]

        def hits(lengths):
            best = first_largest([a / n for a, n in zip(log_probs, lengths)])
            return float(best == gold_of(sample))
        scores = {"acc": hits([1] * len(choices)), "acc_norm": hits([len(c) for c in choices]),
                  "acc_bytes": hits([len(c.encode()) for c in choices])}
    else:
        scores = {"acc": float(answers[0][1])}
        scores.update((name, log_probs[0]) for name in sample["metrics"] if "per" in name)
    return {name: scores[name] for name in sample["metrics"]}


def mean(values):
    return sum(values) / len(values)


def error_of(values):
    middle = mean(values)
    deviation = math.sqrt(sum((x - middle) ** 2 for x in values) / (len(values) - 1))
    return deviation / math.sqrt(len(values))


def figures_of(samples, scores):
    """The metrics over all questions, with their standard errors."""
    figures = {}
    for name in samples[0]["metrics"]:
        values = [score[name] for score in scores]
        if name.startswith("acc"):
            figures[name], figures[f"{name}_stderr"] = mean(values), error_of(values)
        elif name == "perplexity":
            figures[name] = math.exp(-mean(values))
            figures[f"{name}_stderr"] = figures[name] * error_of(values)
        else:
            text = [sample["doc"]["text"] for sample in samples]
            sizes = [len(t.split()) if name == "word_perplexity" else len(t.encode()) for t in text]
            nats = -sum(values) / sum(sizes)
            figures[name] = nats / math.log(2) if name == "bits_per_byte" else math.exp(nats)
    return figures
