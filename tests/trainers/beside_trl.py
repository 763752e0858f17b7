"""A small model with a chat template, trained here and by a trainer of TRL: on the CPU, in fp32, with one optimizer."""

import json
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
for folder in ("chat", "preference", "resume"):
    sys.path.insert(0, str(TESTS / folder))
import templates  # noqa: E402
from pairs import apart  # noqa: E402
from runs import steps_of  # noqa: E402

STEPS, SEQ_LEN, TOLERANCE = 20, 512, 1e-4
RUN = """
[run]
dir = "{run}"
steps = {steps}
device = "cpu"
threads = 1
[model]
config = "{model}"
[init]
weights = "{model}"
[data]
seq_len = {seq_len}
pack = "whole"
shuffle = false
train = [{{ path = "{store}" }}]
[optimizer]
lr = {lr}
betas = [0.9, 0.95]
weight_decay = 0.1
clip = 1.0
[schedule]
kind = "constant"
[precision]
compute = "fp32"
[checkpoint]
every = 0
"""


def make_model(folder, template):
    """Makes a random model whose tokenizer knows bytes and the template's control tokens; returns the tokenizer."""
    from models import model_of
    from transformers import AutoTokenizer, LlamaConfig

    tokenizer = templates.byte_tokenizer(templates.control_tokens([template]))
    model_of(LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=128,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
                         max_position_embeddings=1024, initializer_range=0.05)).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**templates.SPECIAL, "tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8", newline="")
    return AutoTokenizer.from_pretrained(folder)


class Ours:
    """A run on a store of these records."""

    def __init__(self, run, folder, model, records, lr, more=""):
        self.run, self.folder = run, folder
        (folder / "chats.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        run("longhaul", "data", "build", folder / "chats.jsonl", "--chat", "--tokenizer", model,
            "--out", folder / "store")
        (folder / "run.toml").write_text(RUN.format(
            run=folder / "run", model=model, store=folder / "store", steps=STEPS, seq_len=SEQ_LEN, lr=lr) + more)

    def train(self, *sets, name="run"):
        """The records of the steps, in their order."""
        words = [word for one in (f'run.dir="{self.folder / name}"', *sets) for word in ("--set", one)]
        self.run("longhaul", "train", self.folder / "run.toml", *words)
        return [record for _, record in sorted(steps_of(self.folder / name).items())]

    def rows(self, *sets):
        """How many rows the store has."""
        self.train("run.steps=1", "batch.global_size=1", *sets, name="counted")
        (line,) = [line for line in (self.folder / "counted/log.txt").read_text().splitlines() if "train data:" in line]
        return int(line.split(" rows of ")[0].split()[-1])


def settings(folder, lr, **more):
    """The arguments of a trainer's configuration that make it do what RUN says."""
    return dict(output_dir=str(folder / "trl"), max_steps=STEPS, logging_steps=1, report_to=[], save_strategy="no",
                use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True, optim="adamw_torch",
                learning_rate=lr, lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8,
                weight_decay=0.1, max_grad_norm=1.0, train_sampling_strategy="sequential", max_length=SEQ_LEN) | more


def steps_of_trainer(trainer):
    """Trains; returns what is logged of each step, with the loss as it is before it is rounded."""
    losses, compute_loss = [], trainer.compute_loss

    def keep(*arguments, **named):
        loss = compute_loss(*arguments, **named)
        losses.append(loss.item())
        return loss

    trainer.compute_loss = keep
    trainer.train()
    steps = [dict(log) for log in trainer.state.log_history if "grad_norm" in log]
    each = len(losses) // len(steps)
    assert each * len(steps) == len(losses) and each == trainer.args.gradient_accumulation_steps
    for number, step in enumerate(steps):
        step["loss"] = sum(losses[number * each:(number + 1) * each])
    return steps


def furthest(ours, theirs, names):
    """(distance, name, step) of the figures that are furthest apart."""
    assert len(ours) == len(theirs) > 0
    return max((apart(float(a[name]), float(b[name])), name, step)
               for step, (a, b) in enumerate(zip(ours, theirs), 1) for name in names)
