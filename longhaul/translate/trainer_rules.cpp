#include "longhaul/translate/trainer_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::translate {
namespace {

/// Puts schedule.min_lr, which axolotl gives as a number or as a share of learning_rate.
void put_lowest_rate(const Job& job, const std::string& kind) {
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
void put_no_warmup(const Job& job, const TrainerWords& words) {
  job.draft().put("schedule.warmup_steps", int64_t{0},
                  words.scheduler + " constant: no warm-up");
  for (const char* name : {"warmup_steps", "warmup_ratio"}) {
    const Said* const said = job.find(name);
    if (said == nullptr) continue;
    job.draft().leave(
        "{}: their {} constant ignores it, too; constant_with_warmup has a "
        "warm-up",
        said->as_written(), words.scheduler);
  }
}

void put_warmup(const Job& job, const TrainerWords& words) {
  Draft& draft = job.draft();
  const Known<double> number = job.real("warmup_steps");
  if (number.value && *number.value > 0.0 && *number.value < 1.0) {
    return job.put("schedule.warmup_fraction", number);  // transformers 5
  }
  Known<int64_t> warmup = job.whole("warmup_steps");
  const Known<double> part = job.real("warmup_ratio");
  const Known<int64_t> steps = job.whole("max_steps");
  if (warmup.given) {
    if (words.short_warmup && warmup.value && *warmup.value == 1)
      warmup = {2, warmup.from + " 1: their shortest warm-up is 2", true};
    job.put("schedule.warmup_steps", warmup);
  } else if (part.given) {
    job.put("schedule.warmup_fraction", part);
  } else if (!words.short_warmup) {
    draft.put_default("schedule.warmup_steps", int64_t{0});
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

void put_schedule(const Job& job, const TrainerWords& words) {
  Draft& draft = job.draft();
  const Known<std::string> scheduler = job.text(words.scheduler, words.kind);
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
  put_lowest_rate(job, kind);
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
  job.ask("lr_scheduler_kwargs", "schedule.min_lr",
          ": each of its entries is a key of [schedule]");
  if (name == "constant") return put_no_warmup(job, words);
  put_warmup(job, words);
  if (kind != "linear" && draft.whole("schedule.warmup_steps", 1) > 0) {
    draft.put("schedule.warmup_start", "zero", "their form: lr s / W");
  }
}

void put_optimizer(const Job& job, const TrainerWords& words) {
  Draft& draft = job.draft();
  const Known<std::string> optimizer = job.text(words.optimizer, "adamw_torch");
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
void put_sharding(const Job& job) {
  Draft& draft = job.draft();
  const Said* const setup = job.find("accelerate_config");
  const bool of_setup =
      setup != nullptr && setup->text().find("zero") != std::string::npos;
  if (const Said* const file = of_setup ? setup : job.find("deepspeed")) {
    const std::string name = dictionary::word_name(file->text());
    size_t at = name.rfind("zero");
    if (at == std::string::npos) at = name.rfind("ds_z");  // LLaMA-Factory's files
    const char stage =
        at == std::string::npos || at + 4 >= name.size() ? '?' : name[at + 4];
    if (stage >= '0' && stage <= '3') {
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
                    form != nullptr || reshard.given ||
                    (setup != nullptr && setup->text().find("fsdp") != std::string::npos);
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

void put_length(const Job& job, const TrainerWords& words) {
  const Known<int64_t> steps = job.whole("max_steps");
  if (steps.given && steps.value_or(1) > 0) return job.put("run.steps", steps);
  Known<double> epochs = job.real(words.epochs, words.num_epochs);
  epochs.given = true;
  job.put("run.epochs", epochs);
}

/// Puts an interval in steps. A value below 1 is a share of the run's steps.
void put_interval(const Job& job, const char* name, const std::string& key) {
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

void put_precision(const Job& job, const TrainerWords& words) {
  Draft& draft = job.draft();
  const bool null = std::ranges::any_of(job.source().said, [](const Said& said) {
    return said.name == "bf16" && said.null;
  });
  const Said* const bf16 = job.find("bf16");
  const Said* const fp16 = job.find_any({"fp16", "float16"});
  const bool small = fp16 != nullptr && truth_of(*fp16);
  const bool automatic = bf16 == nullptr ? (null ? words.null_bf16 : words.bf16)
                                         : dictionary::word_name(bf16->text()) == "auto";
  const bool wanted = bf16 != nullptr && truth_of(*bf16) && !automatic;
  if (wanted || job.on("bfloat16", false).value_or(true)) return;
  if (small) {
    draft.put("precision.compute", "bf16",
              "longhaul has no fp16; bf16 needs no loss scale");
  } else if (!automatic) {
    draft.put("precision.compute", "fp32",
              null              ? "bf16 is null, which is false there"
              : bf16 == nullptr ? "their default"
                                : bf16->as_written());
  }
}

void put_memory(const Job& job, bool recompute) {
  Draft& draft = job.draft();
  const Said* const said = job.find("gradient_checkpointing");
  if (said == nullptr ? recompute : dictionary::word_name(said->text()) != "false") {
    draft.put("memory.recompute", "full",
              said == nullptr ? "their default" : said->shown);
  }
  if (job.on("activation_offloading", false).value_or(false) &&
      draft.has("memory.recompute")) {
    draft.put("memory.offload_activations", true, "activation_offloading");
  }
}

/// Translates save_strategy or eval_strategy if save_steps or eval_steps is absent.
void put_strategy(const Job& job, const Said& said, const std::string& key) {
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

void put_saves(const Job& job) {
  Draft& draft = job.draft();
  put_interval(job, "save_steps", "checkpoint.every");
  put_interval(job, "eval_steps", "validation.every");
  if (const Said* const said = job.find("save_strategy");
      said != nullptr && job.find("save_steps") == nullptr) {
    put_strategy(job, *said, "checkpoint.every");
  }
  if (const Said* const said = job.find_any({"eval_strategy", "evaluation_strategy"});
      said != nullptr && job.find("eval_steps") == nullptr) {
    put_strategy(job, *said, "validation.every");
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

bool is_off(const Said& said, std::string_view harmless) {
  if (said.values.empty()) return false;  // a flag alone
  const std::string word = dictionary::word_name(said.text());
  const auto number = whole_number<double>(word);
  return word.empty() || (number && *number == 0.0) || has_word(harmless, word) ||
         has_word("false no off none null", word);
}

/// Settings that would change the training in a way that longhaul does not have.
struct Refused {
  std::string_view names;
  const char* why;
  std::string_view harmless = {};  ///< values that change nothing
};
constexpr Refused kRefused[] = {
    {"load_in_4bit quantization_bit gptq",
     "the weights beside an adapter are of precision.compute, and never quantized; where "
     "there is memory for them, say LoRA without it"},
    {"lora_target_parameters pissa_init peft_layers_pattern peft_layers_to_transform "
     "peft_layer_replication peft_trainable_token_indices relora",
     "[adapter] has no such form"},
    {"peft_init_lora_weights", "B begins with zeros here, A with PEFT's values", "true"},
    {"loss_weights use_weighting sync_ref_model pref_ftx pref_bco_weight rpo_alpha "
     "dpo_use_weighting dpo_norm_loss",
     "[preference] has no such part of a loss"},
    {"f_divergence_type", "[preference] has one measure of distance", "reverse_kl"},
    {"ld_alpha", "[preference] has no such part of a loss", "1 1.0"},
    {"dpo_label_smoothing", "[preference] smooths \"robust\" and \"simpo\" alone"},
    {"ref_model ref_model_adapters", "the reference is what the run begins with"},
    {"use_galore use_apollo use_badam", "optimizer.kind is adamw or lamb"},
    {"use_llama_pro", "a model gets no further layers"},
};

void refuse_settings(const Job& job) {
  for (const Refused& entry : kRefused) {
    for (const std::string& name : split_words(entry.names)) {
      const Said* const said = job.find(name);
      if (said == nullptr || is_off(*said, entry.harmless)) continue;
      throw InputError(
          "flags",
          one_line(fmt::format("{}{}: {}", said->where.empty() ? "" : said->where + ": ",
                               said->as_written(), entry.why)));
    }
  }
  if (job.on("load_in_8bit", false).value_or(false)) {
    job.caution("load_in_8bit", "the base is not quantized here");
  }
}

/// Puts names of modules. PEFT takes a single text for a regular expression, which a
/// pattern here cannot say.
void put_modules(const Job& job, const std::string& key, const std::string& name,
                 std::vector<std::string> names) {
  const Said* const said = job.find_any({name, "lora_target_linear"});
  const std::string from = said == nullptr ? "their default" : said->shown;
  for (std::string& one : names) {
    if (one == "all") one = "all-linear";
    if (one.find_first_of("()[]{}|\\^$+") == std::string::npos &&
        one.find(".*") == std::string::npos) {
      continue;
    }
    return job.draft().fill(
        key, "{} {}: a regular expression; here stand names, their ends, or patterns",
        from, one);
  }
  if (names.size() == 1) return job.draft().put(key, names[0], from);
  config::Array items;
  for (const std::string& one : names) items.push_back({one, ""});
  job.draft().put(key, std::move(items), from);
}

}  // namespace

void put_trainer(const Job& job, const TrainerWords& words) {
  refuse_settings(job);
  job.draft().put_default("run.seed", int64_t{42});
  put_length(job, words);
  put_optimizer(job, words);
  if (words.rate > 0.0) job.put("optimizer.lr", job.real("learning_rate", words.rate));
  put_schedule(job, words);
  put_sharding(job);
  put_memory(job, words.recompute);
  put_precision(job, words);
  put_saves(job);
  if (words.logging == 0) return;
  if (job.find("save_strategy") == nullptr) {
    job.draft().put_default("checkpoint.every", int64_t{500});
  }
  put_interval(job, "logging_steps", "log.every");
  job.draft().put_default("log.every", words.logging);
}

std::vector<std::string> listed(const Job& job, const std::string& name) {
  std::vector<std::string> out;
  for (const Said* const said : job.all(name)) {
    for (std::string text : said->values) {
      std::ranges::replace(text, ',', ' ');
      std::ranges::move(split_words(text), std::back_inserter(out));
    }
  }
  return out;
}

void put_adapter(const Job& job, const AdapterWords& words) {
  Draft& draft = job.draft();
  draft.put("adapter.kind", job.on(words.dora, false).value_or(false) ? "dora" : "lora",
            words.kind);
  job.put("adapter.rank", job.whole(words.rank, words.default_rank));
  job.put("adapter.alpha", job.real("lora_alpha", words.default_alpha));
  if (!draft.has("adapter.rank"))
    draft.fill("adapter.rank", words.rank + " is not given");
  if (!draft.has("adapter.alpha")) draft.fill("adapter.alpha", "lora_alpha is not given");
  job.put("adapter.rslora", job.on(words.rslora, false));
  job.put("adapter.dropout", job.real("lora_dropout", words.default_dropout));
  std::vector<std::string> modules = listed(job, words.modules);
  if (job.on("lora_target_linear", false).value_or(false)) {
    modules.insert(modules.begin(), "all-linear");
  }
  if (modules.empty()) modules = words.default_modules;
  if (modules.empty()) {
    draft.fill("adapter.modules", words.modules + " is not given");
  } else {
    put_modules(job, "adapter.modules", words.modules, modules);
  }
  if (const auto whole = listed(job, words.save); !whole.empty()) {
    put_modules(job, "adapter.save", words.save, whole);
  }
  const Known<double> ratio = job.real("loraplus_lr_ratio");
  if (ratio.value) {
    draft.put("optimizer.groups",
              config::Array{{config::Table{{"match", "", {std::string("lora_B"), ""}},
                                           {"lr_scale", "", {*ratio.value, ""}}},
                             ""}},
              ratio.from);
  }
  if (!words.start.empty()) job.put("init.adapter", job.text(words.start));
}

void put_preference(const Job& job, const std::string& loss, const std::string& from,
                    const std::string& beta, const std::string& smoothing) {
  constexpr std::string_view kLosses =
      "sigmoid ipo hinge robust apo_zero sigmoid_norm simpo orpo";
  if (!has_word(kLosses, loss)) {
    fail_input("flags", "{} {}: [preference] has {}", from, one_line(loss),
               fmt::join(split_words(kLosses), ", "));
  }
  job.draft().put("preference.loss", loss, from);
  job.put("preference.beta", job.real(beta, 0.1));
  if (loss == "robust") {
    job.put("preference.label_smoothing", job.real(smoothing, 0.0));
  }
  if (loss == "simpo") job.put("preference.simpo_gamma", job.real("simpo_gamma", 0.5));
}

void put_chats(const Job& job, const Chats& chats) {
  Draft& draft = job.draft();
  const auto model = draft.lines().find("model.config");
  const std::string* const name =
      model == draft.lines().end() ? nullptr
                                   : std::get_if<std::string>(&model->second.value.data);
  draft.fill(
      "data.train",
      "a store of {}: longhaul data build FILES {} --tokenizer {} --out STORE{}",
      chats.sets.empty() ? "the data" : fmt::format("{}", fmt::join(chats.sets, ", ")),
      chats.how, name == nullptr || model->second.to_fill ? "MODEL" : *name,
      chats.targets);
  if (!chats.pairs || !chats.tokens.value) {
    job.put("data.seq_len", chats.tokens);
  } else {
    draft.put("data.seq_len", 2 * *chats.tokens.value,
              fmt::format("2 * {}: both sides of a pair stand in one row", chats.length));
  }
  if (!chats.whole) return;
  draft.put("data.pack", "whole", "attention stays inside each conversation");
  if (chats.cut) {
    draft.put("data.too_long", "cut", "what is longer loses its end there, too");
  }
  if (chats.packed) return;
  draft.leave(
      "CAUTION batch.global_size counts rows, and a row holds as many {0} as fit. Theirs "
      "counts {0}: batch.global_size * rows / {0} is theirs, and a start's log counts "
      "both",
      chats.pairs ? "pairs" : "conversations");
}

}  // namespace longhaul::translate
