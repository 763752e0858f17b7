// These rules translate nanotron.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/translate/flag_rules.h"

namespace longhaul::translate {
namespace {

/// Returns all values of the list entries of one name.
std::vector<std::string> values_of(const Job& job, const std::string& name) {
  std::vector<std::string> out;
  for (const Said* said : job.all(name)) {
    for (const std::string& value : said->values) out.push_back(value);
  }
  return out;
}

const std::string kNanotronRate = "optimizer.learning_rate_scheduler.";

std::string nanotron_decay_form(const Job& job) {
  std::string style = job.text(kNanotronRate + "lr_decay_style", "linear").value_or("");
  if (style == "linear" || style == "cosine") return style;
  if (style == "1-sqrt") return "sqrt";
  fail_input("flags", "{}lr_decay_style: {}: nanotron has linear, cosine and 1-sqrt",
             kNanotronRate, one_line(style));
}

/// Puts the warm-up: linear from rate 0, or steps at the whole rate.
void put_nanotron_warmup(const Job& job, int64_t warmup) {
  Draft& draft = job.draft();
  std::string style = job.text(kNanotronRate + "lr_warmup_style", "linear").value_or("");
  if (style == "constant") {
    return draft.put("schedule.warmup_steps", int64_t{0},
                     kNanotronRate + "lr_warmup_style constant: the whole rate at once");
  }
  if (warmup > 0) {
    return draft.put("schedule.warmup_start", "zero", "their form: lr s / W");
  }
  draft.leave(kNanotronRate +
              "lr_warmup_steps 0: their linear warm-up gives step 1 alone the rate 0, "
              "here step 1 has the whole rate");
}

/// Puts a decay of `length` steps after `first` steps.
void put_nanotron_decay(const Job& job, int64_t warmup, int64_t first, int64_t length) {
  Draft& draft = job.draft();
  const std::string form = nanotron_decay_form(job);
  const std::string from = job.find(kNanotronRate + "lr_decay_style") != nullptr
                               ? kNanotronRate + "lr_decay_style"
                               : "their default";
  const bool stable = first > draft.whole("schedule.warmup_steps", 0);
  if (!stable && form != "sqrt") {
    draft.put("schedule.kind", form, from);
  } else {
    draft.put("schedule.kind", "wsd",
              first == warmup ? "the decay begins after lr_warmup_steps"
                              : kNanotronRate + "lr_decay_starting_step");
    draft.put("schedule.decay", form, from);
    draft.put("schedule.decay_steps", length,
              job.find(kNanotronRate + "lr_decay_steps") != nullptr
                  ? kNanotronRate + "lr_decay_steps"
                  : "lr_decay_steps, absent: their train_steps - lr_warmup_steps");
  }
  const int64_t steps = draft.whole("run.steps", 1);
  if (first + length == steps) return;
  draft.put("schedule.horizon", first + length,
            fmt::format("where their decay ends: {} + {}", first, length));
  if (first + length > steps && job.find(kNanotronRate + "lr_decay_steps") == nullptr) {
    draft.leave(
        "CAUTION lr_decay_starting_step {} without lr_decay_steps: nanotron decays over "
        "train_steps - lr_warmup_steps = {} steps, up to step {}, and the run ends at "
        "{}. So does this one; schedule.decay_steps = {} without schedule.horizon ends "
        "the decay with the run",
        first, length, first + length, steps, std::max<int64_t>(steps - first, 1));
  }
}

void put_nanotron_schedule(const Job& job) {
  Draft& draft = job.draft();
  const int64_t steps = draft.whole("run.steps", 1);
  const int64_t warmup = draft.whole("schedule.warmup_steps", 0);
  const int64_t first =
      job.whole(kNanotronRate + "lr_decay_starting_step", warmup).value_or(warmup);
  const int64_t length =
      std::max<int64_t>(job.whole(kNanotronRate + "lr_decay_steps", steps - warmup)
                            .value_or(steps - warmup),
                        1);
  put_nanotron_warmup(job, warmup);
  const Known<double> low = job.real(kNanotronRate + "min_decay_lr");
  const Known<double> peak = job.real(kNanotronRate + "learning_rate");
  if (!low.given || (low.value && peak.value && *low.value == *peak.value)) {
    nanotron_decay_form(job);
    return draft.put("schedule.kind", "constant",
                     low.given ? "min_decay_lr is learning_rate"
                               : "min_decay_lr, absent: their rate does not fall");
  }
  put_nanotron_decay(job, warmup, first, length);
  job.put("schedule.min_lr", low);
  if (first < warmup) {
    draft.leave(
        "CAUTION {}lr_decay_starting_step {} lies in the warm-up of {} steps: their rate "
        "leaps after it, here it does not",
        kNanotronRate, first, warmup);
  }
}

void put_nanotron_model(const Job& job) {
  Draft& draft = job.draft();
  const std::string at = "model.model_config.";
  for (const char* field :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
        "bos_token_id", "eos_token_id"}) {
    job.override_whole(at + field, field);
  }
  for (const char* field : {"rms_norm_eps", "rope_theta"})
    job.override_real(at + field, field);
  const Known<std::string> act = job.text(at + "hidden_act");
  if (act.value) draft.override_field("hidden_act", *act.value, act.from);
  const Known<bool> tied = job.on(at + "tie_word_embeddings");
  if (tied.value) draft.override_field("tie_word_embeddings", *tied.value, tied.from);
  job.override_real("model.init_method.std", "initializer_range");
  draft.fill(
      "model.config",
      "the config.json of a Llama (or of the model's family); model.override below has "
      "their shape");
  job.ask("model.init_method.path", "init.weights",
          ": a Hugging Face directory of these weights");
}

void put_nanotron_data(const Job& job) {
  Draft& draft = job.draft();
  std::vector<std::string> names;
  for (const char* key : {"hf_dataset_or_datasets", "dataset_folder", "dataset_path"}) {
    for (const std::string& value :
         values_of(job, std::string("data_stages.data.dataset.") + key)) {
      if (std::ranges::find(names, value) == names.end()) names.push_back(value);
    }
  }
  const std::vector<std::string> weights =
      values_of(job, "data_stages.data.dataset.dataset_weights");
  const std::string shares =
      weights.empty() ? ""
                      : fmt::format(" as {{ path, weight }} each, with the weights {}",
                                    fmt::join(weights, ", "));
  if (names.empty()) {
    draft.put("data.train", synthetic_source(), "no data set is named: random tokens");
  } else {
    draft.fill("data.train",
               "token stores or data sets of ids: longhaul data build makes them of the "
               "text of {}{}",
               fmt::join(names, ", "), shares);
  }
  for (const Said* stage : job.all("data_stages.start_training_step")) {
    if (!stage->values.empty() && whole_of(*stage, stage->text()) > 1) {
      draft.leave(
          "{}: data.changes gives the sources of data.train other weights from a step on",
          stage->as_written());
    }
  }
}

}  // namespace

void translate_nanotron(const Job& job) {
  Draft& draft = job.draft();
  const Known<int64_t> micro = job.whole("tokens.micro_batch_size");
  const Known<int64_t> steps = job.whole("tokens.batch_accumulation_per_replica", 1);
  const Known<int64_t> dp = job.whole("parallelism.dp");
  if (micro.value && steps.value && dp.value) {
    draft.put(
        "batch.global_size", *micro.value * *steps.value * *dp.value,
        fmt::format("micro_batch_size {} * batch_accumulation_per_replica {} * dp {}",
                    *micro.value, *steps.value, *dp.value));
  }
  const std::string mode =
      dictionary::word_name(job.text("parallelism.tp_mode", "ALL_REDUCE").value_or(""));
  if (draft.whole("parallel.tp", 1) > 1) {
    draft.put("parallel.sequence", mode == "reduce_scatter",
              "parallelism.tp_mode " + mode);
  }
  put_expert_ranks(job, "parallelism.expert_parallel_size",
                   "parallelism.expert_tensor_parallel_size", 1);
  note_other_mixtures(job, "model.model_config.moe_config.");
  const Known<std::string> engine = job.text("parallelism.pp_engine", "afab");
  if (draft.whole("parallel.pp", 1) > 1) {
    draft.put("parallel.pipeline", engine.value_or("") == "afab" ? "gpipe" : "1f1b",
              engine.given ? engine.from : "afab, their default");
  }
  if (job.on("parallelism.recompute_layer", false).value_or(false)) {
    draft.put("memory.recompute", "full", "parallelism.recompute_layer");
  }
  const std::string factory =
      job.find("optimizer.optimizer_factory.adam_beta1") != nullptr
          ? "optimizer.optimizer_factory."
          : "optimizer.";
  job.put_betas(factory + "adam_beta1", factory + "adam_beta2", 0.9, 0.95);
  const std::string name = dictionary::word_name(
      job.text("optimizer.optimizer_factory.name", "adamW").value_or(""));
  if (name != "adamw") draft.fill("optimizer.kind", name + ": there are adamw and lamb");
  const std::vector<std::string> excluded =
      values_of(job, "optimizer.weight_decay_exclude_named_params");
  if (excluded.empty()) {
    draft.put("optimizer.no_decay", config::Array{}, "their decay is on all weights");
  } else {
    draft.fill("optimizer.no_decay",
               "patterns with * and ? in place of the regular expressions {}",
               fmt::join(excluded, ", "));
  }
  const Said* const clip = job.find("optimizer.clip_grad");
  draft.put_default(
      "optimizer.clip", clip == nullptr ? 0.0 : real_of(*clip, clip->text()),
      clip == nullptr ? "optimizer.clip_grad null: no clipping" : clip->shown);
  if (!job.on("optimizer.accumulate_grad_in_fp32", true).value_or(true)) {
    draft.put("precision.gradients", "bf16", "optimizer.accumulate_grad_in_fp32 false");
  }
  const std::string dtype = job.text("model.dtype", "bfloat16").value_or("");
  if (dtype == "float32") draft.put("precision.compute", "fp32", "model.dtype");
  if (dtype != "float32" && dtype != "bfloat16") {
    draft.leave("model.dtype {}: the run computes in bf16", dtype);
  }
  put_nanotron_schedule(job);
  put_nanotron_model(job);
  put_nanotron_data(job);
  const Known<int64_t> validate = job.whole("tokens.val_check_interval", -1);
  if (validate.value && *validate.value > 0) {
    job.put("validation.every", validate);
    job.put("validation.batches", job.whole("tokens.limit_val_batches"));
  }
  const Said* const run = job.find("general.run");
  if (run != nullptr && run->text().find('%') == std::string::npos) {
    draft.put("run.dir", "runs/" + run->text(), "general.run");
  }
  if (const Said* const resume = job.find("checkpoints.resume_checkpoint_path")) {
    draft.leave(resume->as_written() +
                ": their checkpoints are not read; a run of longhaul finds its own "
                "newest one by itself");
  }
}

}  // namespace longhaul::translate
