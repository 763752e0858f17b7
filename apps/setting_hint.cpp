#include "apps/setting_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"

namespace longhaul::apps {
namespace {

/// What other trainers call a setting.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"steps", "run.steps"},
    {"batch_size", "batch.global_size"},
    {"global_batch_size", "batch.global_size"},
    {"train_batch_size", "batch.global_size"},
    {"gradient_accumulation_steps", "batch.global_size"},
    {"micro_batch_size", "batch.micro_size"},
    {"per_device_train_batch_size", "batch.micro_size"},
    {"learning_rate", "optimizer.lr"},
    {"max_grad_norm", "optimizer.clip"},
    {"max_steps", "run.steps"},
    {"num_steps", "run.steps"},
    {"train_iters", "run.steps"},
    {"num_train_epochs", "run.epochs"},
    {"out", "run.dir"},
    {"output", "run.dir"},
    {"output_dir", "run.dir"},
    {"model", "model.config"},
    {"model_name_or_path", "init.weights"},
    {"load", "init.weights"},
    {"data", "data.train"},
    {"dataset", "data.train"},
    {"data_path", "data.train"},
    {"train_file", "data.train"},
    {"seq_length", "data.seq_len"},
    {"sequence_length", "data.seq_len"},
    {"max_length", "data.seq_len"},
    {"max_seq_len", "data.seq_len"},
    {"max_seq_length", "data.seq_len"},
    {"block_size", "data.seq_len"},
    {"warmup", "schedule.warmup_steps"},
    {"lr_scheduler_type", "schedule.kind"},
    {"save_steps", "checkpoint.every"},
    {"save_interval", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"resume_from_checkpoint", "checkpoint.resume"},
    {"logging_steps", "log.every"},
    {"log_interval", "log.every"},
    {"eval_steps", "validation.every"},
    {"tensor_model_parallel_size", "parallel.tp"},
    {"pipeline_model_parallel_size", "parallel.pp"},
    {"context_parallel_size", "parallel.cp"},
    {"dtype", "precision.compute"},
    {"mixed_precision", "precision.compute"},
};

/// "--Batch-Size=8" as "batch_size" and "8".
struct Flag {
  std::string name;
  std::string value;
};

Flag read_flag(const std::string& word, const std::string& next) {
  Flag flag;
  const size_t equals = word.find('=');
  flag.name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  for (char& c : flag.name) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (equals != std::string::npos) {
    flag.value = word.substr(equals + 1);
  } else if (!next.starts_with("--")) {
    flag.value = next;
  }
  return flag;
}

std::vector<std::string> settings_named(const std::string& name) {
  for (const auto& [other, full] : kOtherNames) {
    if (name == other) return {full};
  }
  RunConfig defaults;
  const std::vector<std::string> all = config::all_names(config::sections_of(defaults));
  std::vector<std::string> last_parts;
  std::vector<std::string> found;
  for (const std::string& full : all) {
    last_parts.push_back(full.substr(full.find('.') + 1));
    if (full == name || last_parts.back() == name) found.push_back(full);
  }
  if (!found.empty()) return found;
  const bool with_section = name.find('.') != std::string::npos;
  const auto near = nearest_name(name, with_section ? all : last_parts);
  return near ? settings_named(*near) : std::vector<std::string>();
}

std::string as_set(const std::string& setting, const std::string& value) {
  const std::string given = value.empty() ? "VALUE" : value;
  if (setting == "data.train") {
    return fmt::format("--set 'data.train=[{{path=\"{}\"}}]'", given);
  }
  return fmt::format("--set {}={}", setting, given);
}

}  // namespace

std::optional<std::string> setting_hint(const CLI::App& verb,
                                        std::span<const std::string> words) {
  if (verb.get_option_no_throw("--set") == nullptr) return std::nullopt;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool set_in_two = words[i] == "--set" && i + 2 < words.size() &&
                            words[i + 1].find('=') == std::string::npos &&
                            words[i + 1].find('.') != std::string::npos;
    if (set_in_two) {
      return fmt::format("--set takes one word: {}", as_set(words[i + 1], words[i + 2]));
    }
    if (!words[i].starts_with("--") || words[i].size() < 3) continue;
    if (verb.get_option_no_throw(words[i].substr(0, words[i].find('='))) != nullptr) {
      ++i;  // and its value
      continue;
    }
    const Flag flag = read_flag(words[i], i + 1 < words.size() ? words[i + 1] : "");
    std::vector<std::string> sets;
    for (const std::string& setting : settings_named(flag.name)) {
      sets.push_back(as_set(setting, flag.value));
    }
    if (sets.empty()) {
      return fmt::format(
          "{} is no option; settings are given as --set "
          "section.key=value, and `longhaul config` lists them all",
          words[i]);
    }
    return fmt::format("{} is no option; settings are given with --set, here {}",
                       words[i].substr(0, words[i].find('=')), fmt::join(sets, " or "));
  }
  return std::nullopt;
}

}  // namespace longhaul::apps
