#include "apps/setting_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/other_words.h"

namespace longhaul::apps {
namespace {

/// A verb of the command line, and the words behind it.
struct NamedVerb {
  const CLI::App* app = nullptr;
  std::string name;  ///< "longhaul data build"
  std::span<const std::string> words;

  const CLI::Option* option(const std::string& word) const {
    return app->get_option_no_throw(word);
  }
  bool takes_settings() const { return option("--set") != nullptr; }
};

NamedVerb find_verb(const CLI::App& program, std::span<const std::string> words) {
  NamedVerb verb{&program, "longhaul", words};
  while (!verb.words.empty()) {
    const auto under = verb.app->get_subcommands({});
    const auto next = std::ranges::find(under, verb.words[0], &CLI::App::get_name);
    if (next == under.end()) break;
    verb.app = *next;
    verb.name += " " + verb.words[0];
    verb.words = verb.words.subspan(1);
  }
  return verb;
}

/// "--Batch-Size=8" as "--Batch-Size", "batch_size" and "8".
struct UnknownFlag {
  std::string word;
  std::string name;
  std::string value;
};

/// Other programs' names for options of verbs, each with the option of this meaning.
struct OptionWord {
  std::string_view names;
  const char* option;
};

constexpr OptionWord kOptionWords[] = {
    {"output output_dir out_dir output_path output_file outfile output_prefix save_dir "
     "save_path o",
     "--out"},
    {"num_workers workers num_proc nproc jobs j num_threads n_threads "
     "preprocessing_num_workers",
     "--threads"},
    {"torch_dtype precision", "--dtype"},
    {"max_tokens max_length num_tokens n_tokens max_gen_len max_gen_toks tokens",
     "--max-new-tokens"},
    {"temp", "--temperature"},
    {"input_text text p", "--prompt"},
    {"batch_size micro_batch_size eval_batch_size per_device_eval_batch_size",
     "--micro-size"},
    {"sequence_length seq_length max_seq_len max_seq_length context_length block_size "
     "sequence_len",
     "--seq-len"},
    {"tensor_parallel_size tensor_model_parallel_size tp_size", "--tp"},
    {"pipeline_parallel_size pipeline_model_parallel_size pp_size", "--pp"},
    {"context_parallel_size cp_size", "--cp"},
    {"dataset data_path eval_data test_data val_data", "--data"},
    {"tokenizer_name tokenizer_path tokenizer_name_or_path tokenizer_model",
     "--tokenizer"},
    {"text_column text_column_name text_field text_key json_key json_keys column",
     "--field"},
    {"max_shard_size", "--shard-size"},
    {"val_split val_set_size test_size validation_split", "--holdout"},
    {"dedup deduplicate", "--drop-duplicates"},
    {"overwrite overwrite_output_dir f", "--force"},
    {"np nproc nproc_per_node num_processes num_procs gpus num_gpus ngpus world_size",
     "--ranks"},
    {"nproc_per_node gpus_per_node ntasks_per_node num_gpus_per_node",
     "--ranks-per-node"},
    {"nnodes num_nodes", "--nodes"},
    {"nodelist hostfile host machines", "--hosts"},
    {"time_limit", "--time"},
    {"job_name", "--name"},
    {"limit num_samples max_samples", "--max-sequences"},
    {"random_seed", "--seed"},
};

/// Names that other programs give to the file with all settings.
constexpr std::string_view kRunFileWords =
    "config config_file config_path cfg c conf training_config "
    "job.config_file "
    "run_file toml";
/// The positional arguments of verbs that are a run's TOML file.
constexpr std::string_view kRunFiles = "config file run";

std::vector<std::string> long_options(const NamedVerb& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.app->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// Returns the options of the verb that mean the same as another program's flag.
std::vector<std::string> options_meant(const NamedVerb& verb, const std::string& name) {
  std::vector<std::string> found;
  for (const std::string& option : long_options(verb)) {
    if (config::word_name(option) == name) return {option};
  }
  for (const OptionWord& word : kOptionWords) {
    const bool meant = has_word(word.names, name) && verb.option(word.option) != nullptr;
    if (meant) found.emplace_back(word.option);
  }
  return found;
}

std::string as_set(const std::string& setting, const std::string& value) {
  const std::string given = value.empty() ? "VALUE" : value;
  if (setting == "data.train") {
    return fmt::format("--set 'data.train=[{{path=\"{}\"}}]'", given);
  }
  return fmt::format("--set {}={}", setting, given);
}

/// Returns how a run file is given to the verb, or nothing where the flag is no name for
/// a run file or the verb takes none.
std::optional<std::string> as_run_file(const NamedVerb& verb, const UnknownFlag& flag) {
  if (!has_word(kRunFileWords, flag.name)) return std::nullopt;
  for (const CLI::Option* option : verb.app->get_options()) {
    if (!option->get_positional() || !has_word(kRunFiles, option->get_single_name())) {
      continue;
    }
    const std::string file = flag.value.empty() ? "run.toml" : flag.value;
    if (file.ends_with(".yaml") || file.ends_with(".yml")) {
      return fmt::format(
          "{} is no option, and run files are TOML: `longhaul import --flags {}` makes "
          "one of a nanotron or axolotl YAML",
          flag.word, file);
    }
    return fmt::format("{} is no option; the run's file stands by itself: {} {}",
                       flag.word, verb.name, file);
  }
  return std::nullopt;
}

/// Returns what a setting of a run or another trainer's flag means for the verb.
std::string as_setting(const NamedVerb& verb, const UnknownFlag& flag,
                       const config::Meaning& meaning) {
  if (meaning.carry == config::Carry::None) {
    return fmt::format("{} is no option{}", flag.word, config::say_meaning(meaning));
  }
  if (!verb.takes_settings()) {
    return fmt::format("{} is no option: {} is a setting of a run, and {} takes none",
                       flag.word, fmt::join(meaning.keys, " or "), verb.name);
  }
  std::vector<std::string> sets;
  const bool same = meaning.carry == config::Carry::Copy;
  for (const std::string& key : meaning.keys) {
    sets.push_back(as_set(key, same ? flag.value : ""));
  }
  if (same) {
    return fmt::format("{} is no option; settings are given with --set, here {}",
                       flag.word, fmt::join(sets, " or "));
  }
  return fmt::format("{} is no option{}; settings are given as --set {}=VALUE", flag.word,
                     config::say_meaning(meaning), meaning.keys.front());
}

std::string answer(const NamedVerb& verb, const UnknownFlag& flag) {
  if (const auto options = options_meant(verb, flag.name); !options.empty()) {
    return fmt::format("{} is no option of {}; did you mean {}?", flag.word, verb.name,
                       fmt::join(options, " or "));
  }
  if (flag.word == "--set") {
    return fmt::format(
        "--set goes with a run's TOML file, and {} takes none; see {} --help", verb.name,
        verb.name);
  }
  if (const auto file = as_run_file(verb, flag)) return *file;

  RunConfig defaults;
  const std::vector<std::string> all = config::all_names(config::sections_of(defaults));
  if (const auto meaning = config::meaning_of(flag.name, "", all)) {
    return as_setting(verb, flag, *meaning);
  }
  std::vector<std::string> options = long_options(verb);
  std::erase_if(options, [](const std::string& name) { return name == "--set"; });
  std::vector<std::string> names;
  for (const std::string& option : options) names.push_back(config::word_name(option));
  if (const auto near = nearest_name(flag.name, names)) {
    const auto at = std::ranges::find(names, *near) - names.begin();
    return fmt::format("{} is no option of {}; did you mean {}?", flag.word, verb.name,
                       options[static_cast<size_t>(at)]);
  }
  if (!verb.takes_settings()) {
    std::erase_if(options, [](const std::string& name) { return name == "--help"; });
    return fmt::format("{} is no option of {}; {}; see {} --help", flag.word, verb.name,
                       options.empty()
                           ? "it has none"
                           : fmt::format("its options: {}", fmt::join(options, ", ")),
                       verb.name);
  }
  if (const auto meaning = config::meaning_of_mistyped(flag.name, "", all)) {
    return as_setting(verb, flag, *meaning);
  }
  return fmt::format(
      "{} is no option; settings are given as --set section.key=value, and `longhaul "
      "config` lists them all",
      flag.word);
}

/// Returns whether a word is "section.key=value" of a key of longhaul.
bool is_setting(const std::string& word) {
  RunConfig defaults;
  const std::vector<std::string> all = config::all_names(config::sections_of(defaults));
  const size_t equals = word.find('=');
  return equals != std::string::npos &&
         std::ranges::find(all, word.substr(0, equals)) != all.end();
}

/// Returns whether a word looks like an option: "--steps", "-c", but not "-1" or "-".
bool is_flag(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const char first = word[1] == '-' ? (word.size() > 2 ? word[2] : '-') : word[1];
  return std::isalpha(static_cast<unsigned char>(first)) != 0;
}

}  // namespace

std::optional<std::string> setting_hint(const CLI::App& program,
                                        std::span<const std::string> words) {
  const NamedVerb verb = find_verb(program, words);
  if (verb.app == &program) return std::nullopt;
  const std::span<const std::string> given = verb.words;
  for (size_t i = 0; i < given.size() && given[i] != "--"; ++i) {
    const bool set_in_two = verb.takes_settings() && given[i] == "--set" &&
                            i + 2 < given.size() &&
                            given[i + 1].find('=') == std::string::npos &&
                            given[i + 1].find('.') != std::string::npos;
    if (set_in_two) {
      return fmt::format("--set takes one word: {}", as_set(given[i + 1], given[i + 2]));
    }
    if (verb.takes_settings() && is_setting(given[i])) {
      return fmt::format("{} is no option; each setting has a --set of its own: --set {}",
                         given[i], given[i]);
    }
    if (!is_flag(given[i])) continue;
    const size_t equals = given[i].find('=');
    const std::string word = given[i].substr(0, equals);
    const bool is_long = word.starts_with("--");
    if (const CLI::Option* known = verb.option(is_long ? word : word.substr(0, 2))) {
      const bool apart = is_long ? equals == std::string::npos : word.size() == 2;
      if (apart && known->get_items_expected_max() > 0) ++i;  // and its value
      continue;
    }
    UnknownFlag flag{word, config::word_name(word), ""};
    if (equals != std::string::npos) {
      flag.value = given[i].substr(equals + 1);
    } else if (i + 1 < given.size() && !is_flag(given[i + 1])) {
      flag.value = given[i + 1];
    }
    return answer(verb, flag);
  }
  return std::nullopt;
}

}  // namespace longhaul::apps
