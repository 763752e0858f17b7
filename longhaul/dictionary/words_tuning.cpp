// This file has the names of settings in TRL and LLaMA-Factory, which both fine-tune with
// the Trainer of transformers. Names that the two have in common with other trainers and
// that mean the same there are in words_common.cpp.
#include "longhaul/dictionary/tables.h"

namespace longhaul::dictionary {
namespace {

using enum Carry;

constexpr std::string_view kFolder =
    "longhaul data build reads files; nothing is downloaded";

constexpr OtherWord kTuning[] = {
    // The names here are those of transformers' Trainer.
    {"model_name_or_path", Rule, "init.weights model.config"},
    {"train_from_scratch", Rule, "init.weights"},
    {"rope_scaling", Rule, "model.override"},
    {"learning_rate", Rule, "optimizer.lr"},
    {"weight_decay", Copy, "optimizer.weight_decay"},
    {"adam_beta1 adam_beta2", Rule, "optimizer.betas"},
    {"optim", Rule, "optimizer.kind"},
    {"seed", Copy, "run.seed"},
    {"per_device_train_batch_size", Rule, "batch.micro_size"},
    {"gradient_accumulation_steps", Rule, "batch.global_size"},
    {"num_train_epochs", Rule, "run.epochs"},
    {"max_steps", Rule, "run.steps"},
    {"lr_scheduler_type", Rule, "schedule.kind"},
    {"lr_scheduler_kwargs.*", Rule, "schedule.min_lr"},
    {"warmup_steps", Rule, "schedule.warmup_steps"},
    {"warmup_ratio", Rule, "schedule.warmup_fraction"},
    {"bf16 fp16 pure_bf16", Rule, "precision.compute"},
    {"dtype torch_dtype", Rule, "precision.compute"},
    {"gradient_checkpointing disable_gradient_checkpointing", Rule, "memory.recompute"},
    {"resume_from_checkpoint", Rule, "checkpoint.resume"},
    {"gradient_checkpointing_kwargs gradient_checkpointing_kwargs.*", None, "",
     "there is one form of it"},
    {"activation_offloading", Rule, "memory.offload_activations"},
    {"logging_steps", Rule, "log.every"},
    {"save_steps save_strategy", Rule, "checkpoint.every"},
    {"eval_steps eval_strategy evaluation_strategy", Rule, "validation.every"},
    {"deepspeed accelerate_config fsdp fsdp_config.*", Rule, "parallel.zero"},
    {"ddp_timeout", None, "",
     "a collective that hangs ends after resilience.comm_timeout_s"},
    {"plot_loss use_swanlab swanlab_* trackio_* project", None, "", kTracked},
    {"eval_on_start eval_delay eval_accumulation_steps bf16_full_eval", None, "",
     "longhaul eval MODEL judges a model"},
    {"enable_liger_kernel use_unsloth use_unsloth_gc", None, "", kKernels},
    {"model_revision", None, "", kHub},

    // The names here set an adapter, or what else is trained.
    {"use_peft finetuning_type use_dora", Rule, "adapter.kind"},
    {"lora_r lora_rank", Rule, "adapter.rank"},
    {"lora_alpha", Rule, "adapter.alpha"},
    {"lora_dropout", Rule, "adapter.dropout"},
    {"use_rslora", Rule, "adapter.rslora"},
    {"lora_target_modules lora_target", Rule, "adapter.modules"},
    {"lora_modules_to_save additional_target", Rule, "adapter.save"},
    {"adapter_name_or_path", Rule, "init.adapter"},
    {"loraplus_lr_ratio", Rule, "optimizer.groups"},
    {"freeze_trainable_layers freeze_trainable_modules freeze_extra_modules", Rule,
     "optimizer.groups"},
    {"lora_target_parameters pissa_init use_galore use_apollo use_badam use_llama_pro "
     "load_in_8bit load_in_4bit quantization_bit loss_weights ld_alpha f_divergence_type "
     "use_weighting sync_ref_model pref_ftx pref_bco_weight ref_model ref_model_adapters",
     None, "", kNoSuchForm},
    {"quantization_method quantization_type double_quantization use_bnb_nested_quant "
     "bnb_4bit_* f_alpha_divergence_coef discopop_tau ref_model_mixup_alpha "
     "ref_model_sync_steps",
     None, "", "it belongs to a setting that is refused"},
    {"lora_task_type create_new_adapter", None, "",
     "a run has one adapter, for predicting the next token"},

    // The names here set the loss of pairs.
    {"stage", Rule, "preference.loss"},
    {"loss_type pref_loss", Rule, "preference.loss"},
    {"beta pref_beta", Rule, "preference.beta"},
    {"label_smoothing dpo_label_smoothing", Rule, "preference.label_smoothing"},
    {"simpo_gamma", Rule, "preference.simpo_gamma"},
    {"precompute_ref_*", None, "", "the reference is always evaluated first"},
    {"disable_dropout", None, "", "config.json says dropout, in families that have one"},

    // The names here set the data.
    {"max_length cutoff_len", Rule, "data.seq_len"},
    {"truncation_mode", Rule, "data.too_long"},
    {"packing packing_strategy neat_packing", Rule, "data.pack"},
    {"padding_free pad_to_multiple_of pad_token eval_packing", None, "",
     "a row has data.seq_len positions, and attention stays inside each conversation"},
    {"assistant_only_loss completion_only_loss train_on_prompt mask_history", Rule,
     "data.train"},
    {"dataset_name dataset datasets.path", Rule, "data.train"},
    {"datasets.* dataset_config dataset_train_split dataset_test_split dataset_streaming "
     "dataset_num_proc dataset_kwargs dataset_kwargs.* dataset_dir media_dir "
     "tokenized_path "
     "preprocessing_batch_size buffer_size",
     None, "", kFolder},
    {"eval_dataset", Rule, "data.validation"},
    {"val_size test_split_size", None, "",
     "longhaul data build --holdout sets documents aside"},
    {"max_samples mix_strategy interleave_probs", Rule, "data.train"},
    {"shuffle_dataset", None, "", "rows come in a random order by default"},
    {"template chat_template_path tool_format eos_token", None, "", kOwnTemplate},
};

}  // namespace

std::span<const OtherWord> tuning_words() { return kTuning; }

}  // namespace longhaul::dictionary
