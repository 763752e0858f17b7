// These rules translate axolotl's full training of all weights. The settings of an
// adapter are not translated.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/translate/flag_rules.h"

namespace longhaul::translate {
namespace {

using config::Value;

/// Puts schedule.min_lr, which axolotl gives as a number or as a share of learning_rate.
void put_axolotl_floor(const Job& job, const std::string& kind) {
  Draft& draft = job.draft();
  const Known<double> floor = job.real("lr_scheduler_kwargs.min_lr");
  const Said* const share =
      job.find_any({"lr_scheduler_kwargs.min_lr_rate", "cosine_min_lr_ratio"});
  if (kind != "cosine") {
    for (const char* name : {"lr_scheduler_kwargs.min_lr",
                             "lr_scheduler_kwargs.min_lr_rate", "cosine_min_lr_ratio"}) {
      if (const Said* const said = job.find(name))
        draft.leave(said->as_written() + ": belongs to their cosine schedules");
    }
    return;
  }
  if (floor.given) return job.put("schedule.min_lr", floor);
  if (share == nullptr) return;
  const Known<double> rate = job.real(share->name);
  const Known<double> lr = job.real("learning_rate");
  if (!rate.value || !lr.value) {
    return draft.fill("schedule.min_lr", share->shown + " * learning_rate");
  }
  draft.put("schedule.min_lr", *rate.value * *lr.value, rate.from + " * learning_rate");
}

/// Puts no warm-up: transformers' constant has none, whatever warmup_steps says.
void put_axolotl_no_warmup(const Job& job) {
  job.draft().put("schedule.warmup_steps", int64_t{0},
                  "lr_scheduler constant: no warm-up");
  for (const char* name : {"warmup_steps", "warmup_ratio"}) {
    const Said* const said = job.find(name);
    if (said == nullptr) continue;
    job.draft().leave(said->as_written() +
                      ": axolotl's lr_scheduler constant ignores it, too; "
                      "constant_with_warmup has a warm-up");
  }
}

void put_axolotl_warmup(const Job& job) {
  Draft& draft = job.draft();
  Known<int64_t> warmup = job.whole("warmup_steps");
  const Known<double> part = job.real("warmup_ratio");
  const Known<int64_t> steps = job.whole("max_steps");
  if (warmup.given) {
    // axolotl raises a warm-up of one step to two.
    if (warmup.value && *warmup.value == 1)
      warmup = {2, warmup.from + " 1: their shortest warm-up is 2", true};
    job.put("schedule.warmup_steps", warmup);
  } else if (part.given) {
    job.put("schedule.warmup_fraction", part);
  } else if (steps.value && *steps.value > 0) {
    auto share = static_cast<int64_t>(0.03 * static_cast<double>(*steps.value));
    if (share == 1) share = 2;
    draft.put("schedule.warmup_steps", std::min<int64_t>(share, 100),
              "their default: 3% of the steps, at most 100");
  } else {
    draft.fill("schedule.warmup_steps",
               "their default: 3% of the run's steps, at most 100");
  }
}

void put_axolotl_schedule(const Job& job) {
  Draft& draft = job.draft();
  const Known<std::string> scheduler = job.text("lr_scheduler", "cosine");
  const std::string name = scheduler.value_or("");
  std::string kind = name;
  if (kind == "constant_with_warmup") kind = "constant";
  if (kind == "cosine_with_min_lr") kind = "cosine";
  if (kind != "cosine" && kind != "linear" && kind != "constant") {
    draft.fill("schedule.kind", "{} {}: there are cosine, linear, constant and wsd",
               scheduler.from, kind);
  } else {
    draft.put("schedule.kind", kind, scheduler.from);
  }
  put_axolotl_floor(job, kind);
  std::set<std::string> rest{"cosine_constant_lr_ratio"};
  for (const Said& said : job.source().said) {
    if (said.name.starts_with("lr_scheduler_kwargs.")) rest.insert(said.name);
  }
  rest.erase("lr_scheduler_kwargs.min_lr");
  rest.erase("lr_scheduler_kwargs.min_lr_rate");
  for (const std::string& one : rest) {
    if (const Said* const said = job.find(one)) {
      draft.leave(said->as_written() +
                  ": only schedule.min_lr, schedule.constant_steps and schedule.horizon "
                  "can say it");
    }
  }
  if (name == "constant") return put_axolotl_no_warmup(job);
  put_axolotl_warmup(job);
  if (kind != "linear") {
    draft.put("schedule.warmup_start", "zero", "their form: lr s / W");
  }
}

void put_axolotl_optimizer(const Job& job) {
  Draft& draft = job.draft();
  const Known<std::string> optimizer = job.text("optimizer", "adamw_torch");
  const std::string name = optimizer.value_or("");
  if (name.find("adamw") == std::string::npos) {
    draft.fill("optimizer.kind", "{} {}: there are adamw and lamb", optimizer.from, name);
  } else if (name.find("8bit") != std::string::npos ||
             name.find("4bit") != std::string::npos) {
    draft.leave("{}: moments are fp32 here, not 8-bit", optimizer.from + " " + name);
  }
  job.put_betas("adam_beta1", "adam_beta2", 0.9, 0.999);
  draft.put_default("optimizer.weight_decay", 0.0);
  for (const char* key : {"embedding_lr", "embedding_lr_scale", "unfrozen_parameters"}) {
    job.ask(key, "optimizer.groups", ": { match, lr_scale } or { match, frozen }");
  }
}

/// Puts parallel.zero by DeepSpeed's or FSDP's settings.
void put_axolotl_sharding(const Job& job) {
  Draft& draft = job.draft();
  if (const Said* const file = job.find("deepspeed")) {
    const std::string name = dictionary::word_name(file->text());
    const size_t at = name.rfind("zero");
    const char stage =
        at == std::string::npos || at + 4 >= name.size() ? '?' : name[at + 4];
    if (stage >= '1' && stage <= '3') {
      draft.put("parallel.zero", int64_t{stage - '0'}, file->as_written());
    } else {
      draft.fill("parallel.zero", file->as_written() + ": its zero_optimization.stage");
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
      form == nullptr ? "full_shard" : dictionary::word_name(form->text());
  const bool fsdp = job.find("fsdp") != nullptr || job.find("fsdp_version") != nullptr ||
                    form != nullptr || reshard.given;
  if (!fsdp) {
    return draft.put("parallel.zero", int64_t{0}, "neither fsdp nor deepspeed is given");
  }
  const bool two = strategy == "shard_grad_op" || !reshard.value_or(true);
  draft.put("parallel.zero", int64_t{two ? 2 : 3}, "fsdp");
  if (strategy.starts_with("hybrid")) {
    draft.put("parallel.shard_group", "node", form->as_written());
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
               "token stores or data sets of ids: longhaul data build makes them of the "
               "text of {}",
               fmt::join(names, ", "));
  }
  const Known<bool> packed = job.on("sample_packing", false);
  if (packed.value_or(false) && job.on("pretrain_multipack_attn", true).value_or(true)) {
    draft.put("data.document_mask", true,
              packed.from + ": samples do not see each other");
  }
  if (const Said* const mixed = job.find("shuffle_merged_datasets");
      mixed != nullptr && !truth_of(*mixed)) {
    draft.put("data.shuffle", false, mixed->shown);
  }
  const Said* const when = job.find_any({"eval_strategy", "evaluation_strategy"});
  const bool never = when != nullptr && dictionary::word_name(when->text()) == "no" &&
                     job.find("eval_steps") == nullptr;
  if (const Said* const set = job.find("test_datasets.path"); set != nullptr && !never) {
    draft.fill("data.validation", set->as_written() + ": a token store of it");
  }
}

void put_axolotl_length(const Job& job) {
  const Known<int64_t> steps = job.whole("max_steps");
  if (steps.given && steps.value_or(1) > 0) return job.put("run.steps", steps);
  Known<double> epochs = job.real("num_epochs", 1.0);
  epochs.given = true;
  job.put("run.epochs", epochs);
}

/// Returns the micro batches of a replica per step: given, or batch_size /
/// micro_batch_size.
Known<int64_t> axolotl_accumulation(const Job& job, const Known<int64_t>& micro) {
  const Known<int64_t> batch = job.whole("batch_size");
  Known<int64_t> steps = job.whole("gradient_accumulation_steps", 1);
  if (!batch.given) return steps;
  if (steps.given) {
    fail_input("flags",
               "batch_size and gradient_accumulation_steps are both given, which axolotl "
               "refuses; keep gradient_accumulation_steps");
  }
  if (!batch.value || !micro.value) return {std::nullopt, batch.from, true};
  if (*batch.value < 1 || *micro.value < 1 || *batch.value % *micro.value != 0) {
    fail_input("flags",
               "batch_size = {} does not divide into micro batches of micro_batch_size = "
               "{}; give gradient_accumulation_steps in its place",
               *batch.value, *micro.value);
  }
  job.draft().leave(
      "CAUTION batch_size = {}: taken as the sequences of one replica per step, as "
      "axolotl derives gradient_accumulation_steps from it. Versions with 1 as that "
      "setting's default take {} per replica; compare batch.global_size with their log",
      *batch.value, *micro.value);
  return {*batch.value / *micro.value, "batch_size / micro_batch_size", true};
}

void put_axolotl_batch(const Job& job) {
  const Known<int64_t> micro = job.whole("micro_batch_size", 1);
  const Known<int64_t> steps = axolotl_accumulation(job, micro);
  if (job.find("batch_size") != nullptr) {
    job.put_global_size(micro, "batch_size", steps, "");
  } else {
    job.put_global_size(micro, "micro_batch_size", steps, "gradient_accumulation_steps");
  }
}

/// Puts an interval in steps. A value below 1 is a share of the run's steps.
void put_axolotl_interval(const Job& job, const char* name, const std::string& key) {
  const Known<double> interval = job.real(name);
  if (!interval.value || *interval.value >= 1.0) return job.put(key, job.whole(name));
  const int64_t steps = job.draft().whole("run.steps", 0);
  if (steps < 1 || *interval.value <= 0.0) {
    return job.draft().leave("{} = {}: a share of the run's steps; {} counts steps", name,
                             *interval.value, key);
  }
  const double share = std::ceil(*interval.value * static_cast<double>(steps));
  job.draft().put(key, static_cast<int64_t>(share),
                  fmt::format("{} {} of {} steps", name, *interval.value, steps));
}

/// Returns a scalar of YAML as the value of a field of config.json.
Value axolotl_field(const Said& said) {
  const auto one = [](const std::string& text) -> Value {
    if (text == "true" || text == "false") return {text == "true", ""};
    if (const auto whole = whole_number<int64_t>(text)) return {*whole, ""};
    const auto real = whole_number<double>(text);
    if (real && std::isfinite(*real)) return {*real, ""};
    return {text, ""};
  };
  if (said.values.size() == 1) return one(said.text());
  config::Array items;
  for (const std::string& text : said.values) items.push_back(one(text));
  return {std::move(items), ""};
}

/// Puts overrides_of_model_config into model.override: fields, and tables of fields.
void put_axolotl_overrides(const Job& job) {
  const std::string prefix = "overrides_of_model_config.";
  std::vector<std::string> names;
  for (const Said& said : job.source().said) {
    if (said.name.starts_with(prefix) &&
        std::ranges::find(names, said.name) == names.end())
      names.push_back(said.name);
  }
  config::Table fields;
  for (const std::string& name : names) {
    const std::vector<const Said*> all = job.all(name);
    if (all.empty()) continue;
    Said whole = *all.back();
    // A YAML list is read as several settings of one name.
    if (all.size() > 1) {
      whole.values.clear();
      for (const Said* item : all) {
        whole.values.insert(whole.values.end(), item->values.begin(), item->values.end());
      }
    }
    config::Table* table = &fields;
    std::string rest = name.substr(prefix.size());
    for (size_t dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
      const std::string key = rest.substr(0, dot);
      rest = rest.substr(dot + 1);
      config::Entry* entry = config::find(*table, key);
      if (entry == nullptr) {
        table->push_back({key, "", {config::Table{}, ""}});
        entry = &table->back();
      }
      table = std::get_if<config::Table>(&entry->value.data);
      if (table == nullptr) fail_input("flags", "{} is both a value and a table", name);
    }
    table->push_back({rest, "", axolotl_field(whole)});
  }
  for (config::Entry& entry : fields) {
    job.draft().override_field(entry.key, std::move(entry.value), prefix + entry.key);
  }
}

void put_axolotl_model(const Job& job) {
  Draft& draft = job.draft();
  put_axolotl_overrides(job);
  const Said* const model = job.find("base_model");
  if (model == nullptr) return;
  const Said* const config = job.find("base_model_config");
  const Said& shape = config == nullptr ? *model : *config;
  draft.put("model.config", shape.text(),
            shape.shown + "; a directory on disk, nothing is fetched");
  if (!job.on("reinit_weights", false).value_or(false)) {
    draft.put("init.weights", model->text(), model->shown);
  }
}

/// Puts the precision. An absent bf16 means auto, and null means false, as in axolotl.
void put_axolotl_precision(const Job& job) {
  Draft& draft = job.draft();
  const bool null = std::ranges::any_of(job.source().said, [](const Said& said) {
    return said.name == "bf16" && said.null;
  });
  const Said* const bf16 = job.find("bf16");
  const Said* const fp16 = job.find_any({"fp16", "float16"});
  const bool small = fp16 != nullptr && truth_of(*fp16);
  const bool automatic =
      bf16 == nullptr ? !null : dictionary::word_name(bf16->text()) == "auto";
  const bool wanted = bf16 != nullptr && truth_of(*bf16) && !automatic;
  if (wanted || job.on("bfloat16", false).value_or(true)) return;
  if (small) {
    draft.put("precision.compute", "bf16",
              "longhaul has no fp16; bf16 needs no loss scale");
  } else if (!automatic) {
    draft.put("precision.compute", "fp32",
              null ? "bf16 is null, which is false there" : bf16->as_written());
  }
}

/// Translates save_strategy or eval_strategy if save_steps or eval_steps is absent.
void put_axolotl_strategy(const Job& job, const Said& said, const std::string& key) {
  const std::string word = dictionary::word_name(said.text());
  if (word == "steps" && key == "checkpoint.every") {
    return job.draft().put(key, int64_t{500},
                           said.as_written() + ", their default of save_steps");
  }
  if (word == "no" || word == "false") {
    return job.draft().leave(
        said.as_written() +
        (key == "checkpoint.every"
             ? ": here checkpoints are on: checkpoint.every = 0 saves only at the end, "
               "and a run that fails earlier starts at step 1 again"
             : ": nothing is validated without data.validation"));
  }
  job.draft().leave("{}: {} counts steps", said.as_written(), key);
}

void put_axolotl_saves(const Job& job) {
  Draft& draft = job.draft();
  put_axolotl_interval(job, "save_steps", "checkpoint.every");
  put_axolotl_interval(job, "eval_steps", "validation.every");
  if (const Said* const said = job.find("save_strategy");
      said != nullptr && job.find("save_steps") == nullptr) {
    put_axolotl_strategy(job, *said, "checkpoint.every");
  }
  if (const Said* const said = job.find_any({"eval_strategy", "evaluation_strategy"});
      said != nullptr && job.find("eval_steps") == nullptr) {
    put_axolotl_strategy(job, *said, "validation.every");
  }
  for (const char* name : {"saves_per_epoch", "evals_per_epoch"}) {
    if (const Said* const said = job.find(name)) {
      draft.leave(
          "{}: {} counts steps; longhaul data build --seq-len --global-size prints the "
          "steps of an epoch",
          said->as_written(),
          std::string(name) == "saves_per_epoch" ? "checkpoint.every"
                                                 : "validation.every");
    }
  }
  for (const char* name : {"resume_from_checkpoint", "auto_resume_from_checkpoints"}) {
    if (const Said* const resume = job.find(name)) {
      draft.leave("{}: a run finds its own newest checkpoint by itself",
                  resume->as_written());
    }
  }
}

/// Warns of settings with which axolotl's run is another kind of training.
void note_adapters(const Job& job) {
  Draft& draft = job.draft();
  for (const char* name : {"adapter", "rl"}) {
    const Said* const said = job.find(name);
    if (said == nullptr || said->text().empty()) continue;
    draft.leave(
        "CAUTION {}: this run trains all weights on plain tokens, which is another "
        "training; its rate and memory are not theirs{}",
        said->as_written(),
        std::string_view(name) == "adapter"
            ? "; add [adapter] with kind, rank and alpha by hand"
            : "");
  }
}

}  // namespace

void translate_axolotl(const Job& job) {
  Draft& draft = job.draft();
  draft.put_default("run.seed", int64_t{42});
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
  put_axolotl_model(job);
  const Said* const recompute = job.find("gradient_checkpointing");
  if (recompute != nullptr && dictionary::word_name(recompute->text()) != "false") {
    draft.put("memory.recompute", "full", recompute->shown);
  }
  if (job.on("activation_offloading", false).value_or(false) &&
      draft.has("memory.recompute")) {
    draft.put("memory.offload_activations", true, "activation_offloading");
  }
  put_axolotl_precision(job);
  put_axolotl_saves(job);
}

}  // namespace longhaul::translate
