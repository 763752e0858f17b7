"""Twenty steps on pairs follow TRL's trainers, with all weights and with adapters, and end in the same adapter."""

import math

import pytest
from beside_trl import STEPS, TOLERANCE, Ours, furthest, make_model, settings, steps_of_trainer, templates
from conversations import Maker
from pairs import BETA, FIGURES, GAMMA, LOSSES, SMOOTHING

# At higher rates the least differences of the first steps grow beyond the tolerance within twenty.
LR, LR_WHOLE = 1e-3, 3e-4
LORA = ['adapter.kind="lora"', "adapter.rank=4", "adapter.alpha=8"]
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PREFERENCE = f'[preference]\nloss = "sigmoid"\nbeta = {BETA}\n'


def pairs_of(count):
    maker = Maker(7)

    def said(role, word):
        return [{"role": role, "content": f"{word} {maker.text(maker.draw.choice([3, 9, 15]))}"}]
    return [{"prompt": said("user", number), "chosen": said("assistant", "yes"), "rejected": said("assistant", "no")}
            for number in range(count)]


PAIRS = pairs_of(16)


@pytest.fixture(scope="module")
def place(run, tmp_path_factory):
    """A folder with a model, its tokenizer, a run, and the settings with which each of its steps has all pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "model").mkdir()
    tokenizer = make_model(folder / "model", templates.all_templates()["chat_templates/llama3"])
    ours = Ours(run, folder, folder / "model", PAIRS, LR, PREFERENCE)
    rows = ours.rows()
    assert 1 < rows < len(PAIRS)
    return folder, tokenizer, ours, [f"batch.global_size={rows}", "batch.micro_size=1"]


def loss_sets(loss):
    sets = [f'preference.loss="{loss}"']
    if loss in ("robust", "simpo"):
        sets.append(f"preference.label_smoothing={SMOOTHING}")
    return sets + [f"preference.simpo_gamma={GAMMA}"] * (loss == "simpo")


def base_of(folder):
    import torch
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)


def adapter_of_peft(folder):
    """Writes a random adapter whose B is not zero; returns its directory."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(2)
    made = get_peft_model(base_of(folder), LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=MODULES))
    with torch.no_grad():
        for name, value in made.named_parameters():
            if "lora_B" in name:
                value.normal_(std=0.05)
    made.save_pretrained(folder / "first")
    return folder / "first"


def new_adapter_of_ours(place):
    """The adapter with which a run begins anew, in peft's format."""
    folder, _, ours, sets = place
    if (folder / "new").exists():
        return folder / "new"
    ours.train(*LORA, *sets, "run.steps=1", "optimizer.lr=1e-12", name="begun")
    ours.run("longhaul", "export", folder / "begun", "--out", folder / "new")
    return folder / "new"


def model_with(folder, adapter, is_new):
    import torch
    from peft import PeftModel

    model = PeftModel.from_pretrained(base_of(folder), adapter, is_trainable=True)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if is_new and "lora_B" in name:
                value.zero_()
    return model


def ids_of(tokenizer, pair):
    """A pair as CPOTrainer and ORPOTrainer keep it; their own way from text to ids is not that of a template."""
    prompt = tokenizer.apply_chat_template(pair["prompt"], add_generation_prompt=True)["input_ids"]
    row = {"prompt": "", "chosen": "", "rejected": "", "prompt_input_ids": prompt,
           "prompt_attention_mask": [1] * len(prompt)}
    for side in ("chosen", "rejected"):
        ids = tokenizer.apply_chat_template(pair["prompt"] + pair[side])["input_ids"]
        assert ids[:len(prompt)] == prompt
        row |= {f"{side}_input_ids": ids, f"{side}_attention_mask": [1] * len(ids),
                f"{side}_labels": [-100] * len(prompt) + ids[len(prompt):]}
    return row


def trainer_of(place, model, loss, lr=LR):
    from datasets import Dataset

    folder, tokenizer, *_ = place
    named = settings(folder, lr, per_device_train_batch_size=len(PAIRS), beta=BETA)
    if loss not in ("simpo", "orpo"):
        from trl import DPOConfig, DPOTrainer
        more = {"label_smoothing": SMOOTHING} if loss == "robust" else {}
        return DPOTrainer(model=model, args=DPOConfig(**named, loss_type=loss, **more), processing_class=tokenizer,
                          train_dataset=Dataset.from_list(PAIRS))
    if loss == "simpo":
        from trl.experimental.cpo import CPOConfig as Config
        from trl.experimental.cpo import CPOTrainer as Trainer
        more = dict(loss_type="simpo", label_smoothing=SMOOTHING, simpo_gamma=GAMMA, cpo_alpha=0.0)
    else:
        from trl.experimental.orpo import ORPOConfig as Config
        from trl.experimental.orpo import ORPOTrainer as Trainer
        more = {}

    class OfReadyIds(Trainer):
        def tokenize_row(self, feature, model=None):
            return feature

    rows = Dataset.from_list([ids_of(tokenizer, pair) for pair in PAIRS])
    return OfReadyIds(model=model, args=Config(**named, remove_unused_columns=False, **more),
                      processing_class=tokenizer, train_dataset=rows)


def compare(ours, theirs, what):
    distance, *where = furthest(ours, theirs, ("loss", "grad_norm", *FIGURES))
    print(f"{what}: at most {distance:.1e} apart: {where}")
    assert distance < TOLERANCE, where
    assert len(ours) == STEPS and ours[-1]["rewards/margins"] > ours[0]["rewards/margins"] + 0.05


@pytest.mark.parametrize("loss", LOSSES)
def test_all_weights_have_the_figures_of_trl(place, loss):
    folder, _, ours, sets = place
    records = ours.train(*sets, *loss_sets(loss), f"optimizer.lr={LR_WHOLE}", name=loss)
    compare(records, steps_of_trainer(trainer_of(place, base_of(folder), loss, LR_WHOLE)), loss)


@pytest.mark.parametrize("loss, begin", [*((loss, "of peft") for loss in LOSSES), ("sigmoid", "new"),
                                         ("apo_zero", "new"), ("simpo", "new")])
def test_an_adapter_has_the_figures_of_trl_with_peft(place, loss, begin):
    folder, _, ours, sets = place
    adapter = new_adapter_of_ours(place) if begin == "new" else adapter_of_peft(folder)
    start = [] if begin == "new" else [f'init.adapter="{adapter}"']
    records = ours.train(*LORA, *start, *sets, *loss_sets(loss), name=f"{loss}_{begin[:3]}")
    model = model_with(folder, adapter, begin == "new")
    compare(records, steps_of_trainer(trainer_of(place, model, loss)), f"{loss}, adapter {begin}")
    if loss == "sigmoid":
        assert records[0]["loss"] == math.log(2.0)


def test_a_resumed_run_from_an_adapter_of_peft_exports_what_trl_has_trained(place, tmp_path):
    from peft import get_peft_model_state_dict
    from safetensors.torch import load_file

    folder, _, ours, sets = place
    adapter = adapter_of_peft(folder)
    first = load_file(adapter / "adapter_model.safetensors")
    sets = [*LORA, f'init.adapter="{adapter}"', *sets]
    ours.train(*sets, "run.stop_after=9", name="resumed")
    ours.train(*sets, name="resumed")
    assert "pairs made earlier" in (folder / "resumed/log.txt").read_text()
    ours.run("longhaul", "export", folder / "resumed", "--out", tmp_path / "out")
    model = model_with(folder, adapter, False)
    steps_of_trainer(trainer_of(place, model, "sigmoid"))
    theirs = get_peft_model_state_dict(model, adapter_name="default")
    mine = load_file(tmp_path / "out/adapter_model.safetensors")
    assert mine.keys() == theirs.keys() == first.keys()
    for name, value in theirs.items():
        assert (mine[name] - value).norm() <= 1e-3 * value.norm() < (first[name] - value).norm(), name
