// axolotl: full training of all weights; adapters have no form here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "longhaul/translate/rules.h"

namespace longhaul::translate {
namespace {

using config::Value;

Value axolotl_word(const std::string& text) { return {text, ""}; }

void put_axolotl_schedule(const Job& job) {
  Draft& draft = job.draft();
  const Known<std::string> scheduler = job.text("lr_scheduler", "cosine");
  std::string kind = scheduler.value.value_or("");
  const Known<double> ratio = job.real("cosine_min_lr_ratio");
  if (kind == "constant_with_warmup") kind = "constant";
  if (kind == "cosine_with_min_lr") kind = "cosine";
  if (kind != "cosine" && kind != "linear" && kind != "constant") {
    draft.fill("schedule.kind",
               fmt::format("{} {}: there are cosine, linear, constant and wsd",
                           scheduler.from, kind));
  } else {
    draft.put("schedule.kind", axolotl_word(kind), scheduler.from);
  }
  if (ratio.value) {
    const Known<double> lr = job.real("learning_rate");
    if (lr.value) {
      draft.put("schedule.min_lr", {*ratio.value * *lr.value, ""},
                ratio.from + " * learning_rate");
    }
  }
  for (const char* name : {"cosine_constant_lr_ratio", "lr_scheduler_kwargs.min_lr",
                           "lr_scheduler_kwargs.num_cycles"}) {
    if (const Said* const said = job.find(name)) {
      draft.leave(said->whole() +
                  ": schedule.min_lr, schedule.constant_steps and schedule.horizon "
                  "are the forms that there are");
    }
  }
  const Known<int64_t> warmup = job.whole("warmup_steps");
  const Known<double> part = job.real("warmup_ratio");
  const Known<int64_t> steps = job.whole("max_steps");
  if (warmup.given) {
    job.put("schedule.warmup_steps", warmup);
  } else if (part.given) {
    job.put("schedule.warmup_fraction", part);
  } else if (steps.value && *steps.value > 0) {
    const auto share = static_cast<int64_t>(0.03 * static_cast<double>(*steps.value));
    draft.put("schedule.warmup_steps", {std::min<int64_t>(share, 100), ""},
              "their default: 3% of the steps, at most 100");
  } else {
    draft.fill("schedule.warmup_steps",
               "their default: 3% of the run's steps, at most 100");
  }
  if (kind != "linear") {
    draft.put("schedule.warmup_start", axolotl_word("zero"), "their form: lr s / W");
  }
}

void put_axolotl_optimizer(const Job& job) {
  Draft& draft = job.draft();
  const Known<std::string> optimizer = job.text("optimizer", "adamw_torch");
  const std::string name = optimizer.value.value_or("");
  if (name.find("adamw") == std::string::npos) {
    draft.fill("optimizer.kind",
               fmt::format("{} {}: there are adamw and lamb", optimizer.from, name));
  } else if (name.find("8bit") != std::string::npos ||
             name.find("4bit") != std::string::npos) {
    draft.leave(fmt::format("{}: moments are fp32 here, not of 8 bits",
                            optimizer.from + " " + name));
  }
  job.put_betas("adam_beta1", "adam_beta2", 0.9, 0.999);
  draft.put_default("optimizer.weight_decay", {0.0, ""});
  for (const char* key : {"embedding_lr", "embedding_lr_scale", "unfrozen_parameters"}) {
    if (const Said* const said = job.find(key)) {
      draft.fill("optimizer.groups",
                 said->whole() + ": { match, lr_scale } or { match, frozen }");
    }
  }
}

/// Puts parallel.zero by DeepSpeed's or FSDP's settings.
void put_axolotl_sharding(const Job& job) {
  Draft& draft = job.draft();
  if (const Said* const file = job.find("deepspeed")) {
    const std::string name = config::word_name(file->text());
    const size_t at = name.rfind("zero");
    const char stage =
        at == std::string::npos || at + 4 >= name.size() ? '?' : name[at + 4];
    if (stage >= '1' && stage <= '3') {
      draft.put("parallel.zero", {int64_t{stage - '0'}, ""}, file->whole());
    } else {
      draft.fill("parallel.zero", file->whole() + ": its zero_optimization.stage");
    }
    return;
  }
  const Said* const form = job.find_any(
      {"fsdp_config.fsdp_sharding_strategy", "fsdp_config.sharding_strategy"});
  const Known<bool> reshard =
      job.on(job.find("fsdp_config.reshard_after_forward") != nullptr
                 ? "fsdp_config.reshard_after_forward"
                 : "fsdp_config.fsdp_reshard_after_forward",
             true);
  const std::string strategy =
      form == nullptr ? "full_shard" : config::word_name(form->text());
  const bool fsdp = job.find("fsdp") != nullptr || job.find("fsdp_version") != nullptr ||
                    form != nullptr || reshard.given;
  if (!fsdp) {
    return draft.put("parallel.zero", {int64_t{0}, ""},
                     "neither fsdp nor deepspeed is given");
  }
  const bool two = strategy == "shard_grad_op" || !reshard.value.value_or(true);
  draft.put("parallel.zero", {int64_t{two ? 2 : 3}, ""}, "fsdp");
  if (strategy.starts_with("hybrid")) {
    draft.put("parallel.shard_group", axolotl_word("node"), form->whole());
  }
  const Known<int64_t> shard = job.whole("dp_shard_size");
  if (job.find("dp_replicate_size") != nullptr && shard.value)
    job.put("parallel.shard_group", shard);
}

void put_axolotl_data(const Job& job) {
  Draft& draft = job.draft();
  std::vector<std::string> names;
  for (const char* key :
       {"pretraining_dataset", "pretraining_dataset.path", "datasets.path"}) {
    for (const Said* said : job.all(key)) {
      if (!said->text().empty()) names.push_back(said->text());
    }
  }
  if (!names.empty()) {
    draft.fill("data.train",
               fmt::format("token stores or data sets of ids: longhaul data build makes "
                           "them of the text of {}",
                           fmt::join(names, ", ")));
  }
  const Known<bool> packed = job.on("sample_packing", false);
  if (packed.value.value_or(false) &&
      job.on("pretrain_multipack_attn", true).value.value_or(true)) {
    draft.put("data.document_mask", {true, ""},
              packed.from + ": samples do not see each other");
  }
  if (const Said* const mixed = job.find("shuffle_merged_datasets");
      mixed != nullptr && !truth_of(*mixed)) {
    draft.put("data.shuffle", {false, ""}, mixed->shown);
  }
  if (const Said* const set = job.find("test_datasets.path")) {
    draft.fill("data.validation", set->whole() + ": a token store of it");
  }
}

void put_axolotl_length(const Job& job) {
  const Known<int64_t> steps = job.whole("max_steps");
  if (steps.given && steps.value.value_or(1) > 0) return job.put("run.steps", steps);
  Known<double> epochs = job.real("num_epochs", 1.0);
  epochs.given = true;
  job.put("run.epochs", epochs);
}

void put_axolotl_batch(const Job& job) {
  const Known<int64_t> micro = job.whole("micro_batch_size", 1);
  const Known<int64_t> steps = job.whole("gradient_accumulation_steps", 1);
  Known<int64_t> replica{std::nullopt, micro.value ? steps.from : micro.from, true};
  if (micro.value && steps.value) {
    replica.value = *micro.value * *steps.value;
    replica.from = fmt::format("micro_batch_size {} * gradient_accumulation_steps {} =",
                               *micro.value, *steps.value);
  }
  job.put_global_size(replica);
}

/// Steps, or a share of the run's below 1.
void put_axolotl_interval(const Job& job, const char* name, const std::string& key) {
  const Known<double> interval = job.real(name);
  if (!interval.value || *interval.value >= 1.0) return job.put(key, job.whole(name));
  const int64_t steps = job.draft().whole("run.steps", 0);
  if (steps < 1 || *interval.value <= 0.0) {
    return job.draft().leave(
        fmt::format("{} = {}: a share of the run's steps; {} counts steps", name,
                    *interval.value, key));
  }
  const double share = std::ceil(*interval.value * static_cast<double>(steps));
  job.draft().put(key, {static_cast<int64_t>(share), ""},
                  fmt::format("{} {} of {} steps", name, *interval.value, steps));
}

/// Warns of settings that make axolotl's run another training than this one.
void note_adapters(const Job& job) {
  Draft& draft = job.draft();
  for (const char* name : {"adapter", "rl"}) {
    const Said* const said = job.find(name);
    if (said == nullptr || said->text().empty()) continue;
    draft.leave(
        fmt::format("CAUTION {}: this run trains all weights on plain tokens, which is "
                    "another training; its rate and memory are not theirs",
                    said->whole()));
  }
}

}  // namespace

void translate_axolotl(const Job& job) {
  Draft& draft = job.draft();
  draft.put_default("run.seed", {int64_t{42}, ""});
  job.put("parallel.tp", job.whole("tensor_parallel_size"));
  job.put("parallel.cp", job.whole(job.find("context_parallel_size") != nullptr
                                       ? "context_parallel_size"
                                       : "sequence_parallel_degree"));
  put_axolotl_batch(job);
  put_axolotl_length(job);
  put_axolotl_optimizer(job);
  put_axolotl_schedule(job);
  put_axolotl_sharding(job);
  put_axolotl_data(job);
  note_adapters(job);
  if (const Said* const model = job.find("base_model")) {
    const std::string note = model->shown + "; a directory on disk, nothing is fetched";
    draft.put("model.config", axolotl_word(model->text()), note);
    if (!job.on("reinit_weights", false).value.value_or(false)) {
      draft.put("init.weights", axolotl_word(model->text()), model->shown);
    }
  }
  const Said* const recompute = job.find("gradient_checkpointing");
  if (recompute != nullptr && config::word_name(recompute->text()) != "false") {
    draft.put("memory.recompute", axolotl_word("full"), recompute->shown);
  }
  if (job.on("activation_offloading", false).value.value_or(false) &&
      draft.has("memory.recompute")) {
    draft.put("memory.offload_activations", {true, ""}, "activation_offloading");
  }
  const bool half = job.on(job.find("bf16") != nullptr ? "bf16" : "bfloat16", false)
                        .value.value_or(true);
  if (!half) {
    const Said* const fp16 = job.find_any({"fp16", "float16"});
    const bool small = fp16 != nullptr && truth_of(*fp16);
    draft.put(
        "precision.compute", axolotl_word(small ? "bf16" : "fp32"),
        small ? "fp16 has no form here; bf16 needs no loss scale" : "bf16 is not given");
  }
  put_axolotl_interval(job, "save_steps", "checkpoint.every");
  put_axolotl_interval(job, "eval_steps", "validation.every");
  for (const char* name : {"saves_per_epoch", "evals_per_epoch"}) {
    if (const Said* const said = job.find(name)) {
      draft.leave(
          fmt::format("{}: {} counts steps; longhaul data build --seq-len --global-size "
                      "prints the steps of an epoch",
                      said->whole(),
                      std::string(name) == "saves_per_epoch" ? "checkpoint.every"
                                                             : "validation.every"));
    }
  }
  if (const Said* const resume = job.find("resume_from_checkpoint")) {
    draft.leave(resume->whole() + ": a run finds its own newest checkpoint by itself");
  }
}

}  // namespace longhaul::translate
