// These rules translate axolotl. Rules that hold for TRL and LLaMA-Factory too are in
// trainer_rules.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/translate/flag_rules.h"
#include "longhaul/translate/trainer_rules.h"

namespace longhaul::translate {
namespace {

using config::Value;

/// Puts the chats or pairs that the files of `names` hold. Returns false for text.
bool put_axolotl_chats(const Job& job, std::vector<std::string> names) {
  const Said* const rl = job.find("rl");
  Chats chats{.sets = std::move(names),
              .length = "sequence_len",
              .tokens = job.whole("sequence_len"),
              .pairs = rl != nullptr && !rl->text().empty()};
  bool chat = chats.pairs;
  for (const std::string& type : listed(job, "datasets.type")) {
    chat = chat || !has_word("completion pretrain", type);
    if (type.starts_with("alpaca")) {
      job.draft().leave(
          "CAUTION datasets.type = {}: axolotl writes prompts of its own; the store is "
          "written by the model's chat template",
          type);
    }
  }
  if (!chat) return false;
  chats.packed = job.on("sample_packing", false).value_or(false);
  chats.cut = job.text("excess_length_strategy", "drop").value_or("") == "truncate";
  if (job.on("train_on_inputs", false).value_or(false)) chats.targets = " --targets all";
  for (const char* name : {"datasets.roles_to_train", "roles_to_train"}) {
    for (const std::string& role : listed(job, name)) {
      if (!has_word("assistant gpt model", role)) {
        job.caution(name, "longhaul data build --targets has assistant, last and all");
      }
    }
  }
  put_chats(job, chats);
  return true;
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
  const bool chats = put_axolotl_chats(job, names);
  if (!chats && !names.empty()) {
    draft.fill("data.train",
               "token stores or data sets of ids: longhaul data build makes them of the "
               "text of {}",
               fmt::join(names, ", "));
  }
  const Known<bool> packed = job.on("sample_packing", false);
  if (!chats && packed.value_or(false) &&
      job.on("pretrain_multipack_attn", true).value_or(true)) {
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

void put_axolotl_adapter(const Job& job) {
  const std::string adapter = job.text("adapter", "").value_or("");
  if (adapter.empty()) return;
  if (adapter != "lora") {
    fail_input("flags",
               "adapter = {}: there is lora, with DoRA, beside weights that are not "
               "quantized",
               one_line(adapter));
  }
  put_adapter(job, {.kind = "adapter = lora",
                    .dora = "peft_use_dora",
                    .rslora = "peft_use_rslora",
                    .start = "lora_model_dir",
                    .default_modules = {}});
}

void put_axolotl_preference(const Job& job) {
  const std::string rl = job.text("rl", "").value_or("");
  if (rl.empty()) return;
  const Said* const beta =
      job.find_any({"trl.beta", "rl_beta", "orpo_alpha", "dpo_beta"});
  put_preference(job, rl == "dpo" ? "sigmoid" : rl, "rl",
                 beta == nullptr ? "rl_beta" : beta->name, "dpo_label_smoothing");
  if (rl == "simpo" && job.real("cpo_alpha", 1.0).value_or(1.0) != 0.0) {
    fail_input(
        "flags",
        "rl = simpo: theirs adds cpo_alpha (1 where it is not given) x the loss of "
        "the chosen side, which [preference] has not; with cpo_alpha: 0 it is SimPO");
  }
}

}  // namespace

void translate_axolotl(const Job& job) {
  job.put("parallel.tp", job.whole("tensor_parallel_size"));
  job.put("parallel.cp", job.whole(job.find("context_parallel_size") != nullptr
                                       ? "context_parallel_size"
                                       : "sequence_parallel_degree"));
  put_axolotl_batch(job);
  put_trainer(job, {.scheduler = "lr_scheduler",
                    .kind = "cosine",
                    .optimizer = "optimizer",
                    .epochs = "num_epochs",
                    .num_epochs = 1.0,
                    .null_bf16 = false,
                    .short_warmup = true,
                    .recompute = false});
  put_axolotl_model(job);
  put_axolotl_data(job);
  put_axolotl_adapter(job);
  put_axolotl_preference(job);
}

}  // namespace longhaul::translate
