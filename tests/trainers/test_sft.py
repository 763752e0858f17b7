"""Twenty steps of supervised fine-tuning follow TRL's SFTTrainer, from the same chats by the same template, with and
without packing."""

import pytest
from beside_trl import SEQ_LEN, STEPS, TOLERANCE, Ours, furthest, make_model, settings, steps_of_trainer, templates
from conversations import Maker

LR = 3e-3
MARKED = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
          "{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}{{ '\n' }}"
          "{% else %}{{ m['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# For the published template, which has no marks, TRL trains by its own variant with marks.
TEMPLATES = {"marked": MARKED, "llama3": templates.all_templates()["chat_templates/llama3"]}
# (chats, the least tokens of a chat, the seed): of the chats alone no two fit into a row. Which of several rows with
# the same room is filled first is nobody's rule; with this seed both programs make the same rows.
FORMS = {"packed": (56, 30, 30), "alone": (20, SEQ_LEN // 2 + 1, 30)}


def chats_of(tokenizer, count, least, seed):
    """Chats of at least so many tokens, and at most SEQ_LEN."""
    maker, found = Maker(seed), []
    while len(found) < count:
        roles = ["system"] * maker.draw.randrange(2) + ["user", "assistant"] * maker.draw.randint(1, 3)
        chat = [{"role": role, "content": f"{len(found)} {maker.text(maker.draw.choice([4, 12, 30]))}"}
                for role in roles]
        if least <= len(tokenizer.apply_chat_template(chat)["input_ids"]) <= SEQ_LEN:
            found.append(chat)
    return found


class Place:
    """Chats, a run on them, and TRL's trainer of the same model."""

    def __init__(self, run, folder, form, template):
        self.folder, self.packed = folder, form == "packed"
        (folder / "model").mkdir()
        self.tokenizer = make_model(folder / "model", TEMPLATES[template])
        self.chats = chats_of(self.tokenizer, *FORMS[form])
        self.ours = Ours(run, folder, folder / "model", [{"messages": chat} for chat in self.chats], LR)

    def trainer(self, **more):
        import torch
        from datasets import Dataset
        from transformers import AutoModelForCausalLM
        from trl import SFTConfig, SFTTrainer

        args = SFTConfig(**settings(self.folder, LR, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                                    packing=self.packed, assistant_only_loss=True) | more)
        model = AutoModelForCausalLM.from_pretrained(self.folder / "model", dtype=torch.float32)
        trainer = SFTTrainer(model=model, args=args, processing_class=self.tokenizer,
                             train_dataset=Dataset.from_list([{"messages": chat} for chat in self.chats]))
        trainer.train_dataset = self.in_our_order(trainer.train_dataset)
        return trainer

    def in_our_order(self, rows):
        """The rows in the order of the first chats in them."""
        numbers = {tuple(self.tokenizer.apply_chat_template(chat)["input_ids"]): i for i, chat in enumerate(self.chats)}
        firsts = []
        for row in rows:
            begin, ids, first = 0, row["input_ids"], len(numbers)
            for length in row.get("seq_lengths", [len(ids)]):
                first = min(first, numbers[tuple(ids[begin:begin + length])])
                begin += length
            firsts.append(first)
        return rows.select(sorted(range(len(rows)), key=firsts.__getitem__))


@pytest.mark.parametrize("form, template", [("packed", "llama3"), ("packed", "marked"), ("alone", "llama3")])
def test_twenty_steps_have_the_losses_and_norms_of_trl(run, tmp_path, form, template):
    place = Place(run, tmp_path, form, template)
    trainer = place.trainer()
    rows = len(trainer.train_dataset)
    assert place.ours.rows() == rows and rows % 4 == 0
    assert (rows < len(place.chats)) == (form == "packed")
    theirs = steps_of_trainer(trainer)
    ours = place.ours.train("batch.global_size=4", "batch.micro_size=2")
    distance, *where = furthest(ours, theirs, ("loss", "grad_norm"))
    print(f"{form}, {template}: {rows} rows, at most {distance:.1e} apart: {where}")
    assert distance < TOLERANCE, where
    assert len(theirs) == STEPS and theirs[-1]["loss"] < theirs[0]["loss"] - 0.5


def seen_by_each_other(collate):
    """The batches of a collator, with positions that run on from chat to chat."""
    def joined(examples):
        import torch
        batch = collate(examples)
        batch["position_ids"] = torch.arange(batch["position_ids"].numel())[None]
        return batch
    return joined


@pytest.mark.parametrize("planted", ["all tokens are learned", "chats see each other"])
def test_the_comparison_sees_what_is_wrong(run, tmp_path, planted):
    place = Place(run, tmp_path, "packed", "llama3")
    everything = planted == "all tokens are learned"
    trainer = place.trainer(max_steps=1, assistant_only_loss=not everything)
    if not everything:
        trainer.data_collator = seen_by_each_other(trainer.data_collator)
    ours = place.ours.train("batch.global_size=4", "batch.micro_size=2", "run.stop_after=1")
    assert furthest(ours, steps_of_trainer(trainer), ("loss",))[0] > 10 * TOLERANCE
