// These rules translate TRL (trl sft and trl dpo, version 1.16) and LLaMA-Factory.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/translate/flag_rules.h"
#include "longhaul/translate/trainer_rules.h"

namespace longhaul::translate {
namespace {

/// Puts the model and the batch, and what all programs on the Trainer have.
void put_model(const Job& job, const TrainerWords& words) {
  Known<std::string> model = job.text("model_name_or_path");
  if (!job.on("train_from_scratch", false).value_or(false))
    job.put("init.weights", model);
  job.caution("rope_scaling", "set model.override's rope_scaling");
  model.from += "; a directory on disk, nothing is fetched";
  job.put("model.config", model);
  const Known<int64_t> micro = job.whole("per_device_train_batch_size", 8);
  job.put("batch.micro_size", micro);
  job.put_global_size(micro, "per_device_train_batch_size",
                      job.whole("gradient_accumulation_steps", 1),
                      "gradient_accumulation_steps");
  put_trainer(job, words);
}

/// Warns of weights in bf16 that all are trained without a copy in fp32.
void note_bf16_weights(const Job& job) {
  for (const char* name : {"dtype", "torch_dtype", "pure_bf16"}) {
    const Said* const said = job.find(name);
    if (said == nullptr || job.draft().has("adapter.kind")) continue;
    if (!has_word("bfloat16 true auto", dictionary::word_name(said->text()))) continue;
    job.caution(
        name,
        "their weights and moments are bf16 without a copy in fp32; here these are "
        "fp32");
  }
}

/// Returns whether the settings are those of trl dpo, else of trl sft.
bool trains_pairs(const Job& job) {
  const std::string& script = job.source().script;
  if (script.ends_with("dpo") || script == "dpo.py") return true;
  if (script.ends_with("sft") || script == "sft.py") return false;
  if (!script.empty()) {
    fail_input(
        "flags",
        "{}: there is training on chats (trl sft) and on pairs (trl dpo), and none "
        "on rewards or single judgements",
        one_line(script));
  }
  if (job.find_any({"beta", "precompute_ref_log_probs", "label_smoothing",
                    "f_divergence_type", "loss_weights"}) != nullptr) {
    return true;
  }
  if (job.find_any({"packing", "assistant_only_loss", "completion_only_loss",
                    "dataset_text_field", "eval_packing"}) != nullptr) {
    return false;
  }
  fail_input("flags",
             "{0}: may be a file of trl sft or of trl dpo; give the command: longhaul "
             "import --flags 'trl sft --config {0}'",
             job.source().what);
}

/// Returns the longest text. Null is no limit there.
Known<int64_t> trl_length(const Job& job) {
  const bool none = std::ranges::any_of(job.source().said, [](const Said& said) {
    return said.name == "max_length" && said.null;
  });
  if (none) return {std::nullopt, "max_length null: tokens of the longest text", true};
  return job.whole("max_length", 1024);
}

void put_trl_chats(const Job& job, Chats chats) {
  const std::string strategy = job.text("packing_strategy", "bfd").value_or("");
  chats.packed = job.on("packing", false).value_or(false);
  // Without these settings TRL learns all tokens of messages, and of a prompt and its
  // completion the latter.
  if (const Said* const field = job.find("dataset_text_field")) {
    chats.how = "--field " + field->text();
  } else if (!job.on("assistant_only_loss", false).value_or(false)) {
    const Known<bool> completion = job.on("completion_only_loss");
    if (!completion.value_or(false)) chats.targets = " --targets all";
    if (!completion.given) chats.targets += " (not where records have a completion)";
  }
  chats.whole = !chats.packed || strategy != "wrapped";
  put_chats(job, chats);
  const std::string loss = job.text("loss_type", "nll").value_or("");
  if (!has_word("nll chunked_nll", loss)) {
    fail_input("flags", "loss_type {}: the loss of chats is the plain cross-entropy",
               one_line(loss));
  }
  if (chats.packed && chats.whole && strategy != "bfd") {
    job.caution("packing_strategy", "what is too long is split there, and cut here");
  }
}

}  // namespace

void translate_trl(const Job& job) {
  const bool pairs = trains_pairs(job);
  put_model(job, {.rate = pairs ? 1e-6 : 2e-5, .logging = 10});
  if (job.on("use_peft", false).value_or(false)) {
    // PEFT's modules where none are named are those of Llama and models like it.
    put_adapter(job, {.kind = "use_peft",
                      .default_rank = 16,
                      .default_alpha = 32.0,
                      .default_dropout = 0.05,
                      .default_modules = {"q_proj", "v_proj"}});
  }
  note_bf16_weights(job);
  std::vector<std::string> sets = listed(job, "datasets.path");
  if (sets.empty()) sets = listed(job, "dataset_name");
  const Chats chats{.sets = std::move(sets),
                    .length = "max_length",
                    .tokens = trl_length(job),
                    .pairs = pairs};
  if (pairs) {
    const auto losses = listed(job, "loss_type");
    if (losses.size() > 1) {
      fail_input("flags", "loss_type: {} losses; [preference] has one", losses.size());
    }
    put_chats(job, chats);
    put_preference(job, losses.empty() ? "sigmoid" : losses[0], "loss_type", "beta",
                   "label_smoothing");
  } else {
    put_trl_chats(job, chats);
  }
  if (job.text("truncation_mode", "keep_start").value_or("") != "keep_start") {
    job.caution("truncation_mode", "what is too long loses its end here");
  }
}

void translate_llama_factory(const Job& job) {
  Draft& draft = job.draft();
  const std::string stage = job.text("stage", "sft").value_or("sft");
  if (!has_word("pt sft dpo", stage)) {
    fail_input(
        "flags",
        "stage {}: there is training on text (pt), chats (sft) and pairs (dpo), and "
        "none on rewards or single judgements",
        one_line(stage));
  }
  const bool pure = job.on("pure_bf16", false).value_or(false);
  put_model(job, {.rate = 5e-5,
                  .logging = 500,
                  .bf16 = pure,
                  .null_bf16 = pure,
                  .recompute =
                      !job.on("disable_gradient_checkpointing", false).value_or(false)});

  const std::string type = job.text("finetuning_type", "lora").value_or("lora");
  if (type == "lora") {
    const auto rank = job.whole("lora_rank", 8).value;
    put_adapter(
        job, {.kind = "finetuning_type lora",
              .rank = "lora_rank",
              .modules = "lora_target",
              .save = "additional_target",
              .start = "adapter_name_or_path",
              .default_rank = 8,
              .default_alpha =
                  rank ? std::optional(2.0 * static_cast<double>(*rank)) : std::nullopt});
  } else if (type == "freeze") {
    draft.fill("optimizer.groups",
               "{{ match, frozen = true }} for all but the last {} layers, as theirs",
               job.whole("freeze_trainable_layers", 2).value_or(2));
  } else if (type != "full") {
    fail_input("flags", "finetuning_type {}: there are lora, freeze and full",
               one_line(type));
  }
  note_bf16_weights(job);

  Chats chats{.sets = listed(job, "dataset"),
              .length = "cutoff_len",
              .tokens = job.whole("cutoff_len", 2048),
              .pairs = stage == "dpo"};
  const bool neat = job.on("neat_packing", false).value_or(false);
  chats.packed = stage == "sft" && (neat || job.on("packing", false).value_or(false));
  if (job.on("train_on_prompt", false).value_or(false)) chats.targets = " --targets all";
  if (job.on("mask_history", false).value_or(false)) chats.targets = " --targets last";
  if (stage == "pt") {
    draft.fill("data.train",
               "a token store: longhaul data build FILES --tokenizer MODEL --out STORE");
    job.put("data.seq_len", chats.tokens);
  } else {
    put_chats(job, chats);
  }
  if (stage == "dpo") {
    put_preference(job, job.text("pref_loss", "sigmoid").value_or(""), "pref_loss",
                   "pref_beta", "dpo_label_smoothing");
    if (job.text("pref_loss").value_or("") == "orpo") {
      job.caution("pref_loss",
                  "beside the odds ratio theirs learns the chosen answers, each answer "
                  "with one weight, and orpo here all tokens of the chosen sides");
    }
  }
  if (chats.packed && !neat) {
    job.caution("packing",
                "conversations of a row see each other there, without neat_packing");
  }
  job.ask("eval_dataset", "data.validation", ": a token store of it");
  job.caution("max_samples", "longhaul data build reads all records of its files");
  job.caution("interleave_probs", "a source of data.train has a weight");
}

}  // namespace longhaul::translate
