#include "apps/setting_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "longhaul/dictionary/words.h"

namespace longhaul::apps {
namespace {

/// An unknown flag: "--Batch-Size=8" has the name "batch_size" and the value "8".
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
    {"expert_parallel_size expert_model_parallel_size ep_size", "--ep"},
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
    {"compare compare_with reference ref baseline golden", "--against"},
    {"refresh refresh_interval poll_interval poll", "--interval"},
    {"random_seed", "--seed"},
};

/// What a verb has in place of another program's option. The answer may be that the verb
/// has nothing like it.
struct OptionAnswer {
  std::string_view verbs;  ///< last words of verbs, with spaces between them
  std::string_view names;
  std::string_view answer;
};

constexpr OptionAnswer kOptionAnswers[] = {
    {"generate", "top_k min_p typical_p",
     "--temperature and --top-p say how tokens are chosen, and nothing else does"},
    {"generate", "do_sample sample sampling", "a --temperature above 0 samples"},
    {"generate", "num_beams beams beam_size num_return_sequences",
     "it writes one text, token by token"},
    {"generate",
     "repetition_penalty presence_penalty frequency_penalty no_repeat_ngram_size "
     "length_penalty",
     "it has no penalties"},
    {"generate", "system system_prompt chat chat_template messages",
     "it continues the text of --prompt; there are no chats"},
    {"eval", "tasks task num_fewshot fewshot",
     "it measures the loss on a token store; tasks are for other programs, which read "
     "what longhaul export makes"},
    {"build", "append_eod append_eos add_eos add_bos add_special_tokens",
     "--special-tokens says which special tokens stand around a text; by default EOS "
     "stands behind the text"},
    {"build", "pack packing sample_packing group_texts chunk_size",
     "a store holds whole documents, and data.seq_len of a run file cuts them"},
    {"export", "safetensors save_safetensors safe_serialization",
     "the weights are always safetensors"},
    {"export", "gguf onnx ggml to format output_format",
     "it makes a Hugging Face directory of safetensors; other programs make other "
     "formats of it"},
    {"verify", "deep full strict all",
     "everything is always read and every hash checked"},
    {"verify export eval generate inspect",
     "step steps iteration iter load_step checkpoint_step",
     "a checkpoint is named by its directory, as RUN/checkpoints/step_00000500"},
    {"compare", "rtol atol tol relative_tolerance",
     "--tolerance bounds the norm of a difference, relative to the tensor's norm"},
    {"doctor", "gpu cuda device devices",
     "it looks at the GPUs that it finds, without being asked"},
    {"watch", "follow f tail live", "it goes on until q or Ctrl-C, except with --once"},
    {"config", "print show list dump validate check verify",
     "with a file it checks and prints the settings, without one it lists them all"},
    {"submit", "gpus gpus_per_node gres gpus_per_task num_gpus_per_node",
     "--slurm=--gpus-per-node=8 asks Slurm for devices, and --ranks-per-node says how "
     "many ranks a node has"},
    {"submit",
     "account a qos q constraint mem mem_per_cpu mem_per_gpu cpus_per_task exclusive "
     "mail_type mail_user output error requeue reservation nodelist w exclude x "
     "licenses comment array begin export chdir",
     "Slurm's other options stand behind --slurm=, as --slurm=--account=lab"},
    {"submit", "dependency d depends_on",
     "--after JOB waits for a job's success; other rules stand behind "
     "--slurm=--dependency="},
    {"launch", "nnodes num_nodes nodes n_nodes num_machines machines",
     "--hosts n1,n2 names other machines, and longhaul submit --nodes 2 asks Slurm for "
     "them"},
    {"launch",
     "standalone module m rdzv_backend rdzv_endpoint rdzv_id rdzv_conf master_addr "
     "master_port main_process_port node_rank machine_rank local_rank",
     "it starts the ranks and joins them by itself: -n says how many, --hosts where"},
};

/// Slurm's short options, which are told apart by their case.
constexpr std::pair<std::string_view, std::string_view> kShortOfSlurm[] = {
    {"-p", "--partition"}, {"-N", "--nodes"}, {"-t", "--time"}, {"-J", "--name"}};

/// Names that other programs give to what longhaul takes as a positional argument.
struct PlaceWord {
  std::string_view places;  ///< names of positional arguments, with spaces between them
  std::string_view names;
};

constexpr PlaceWord kPlaceWords[] = {
    {"model",
     "model m model_path model_dir model_name model_name_or_path model_id pretrained "
     "base_model checkpoint ckpt checkpoint_path checkpoint_dir run run_dir"},
    {"run", "run run_dir dir logdir log_dir path input"},
    {"dir path source",
     "dir path source src input input_dir i run run_dir model model_path model_dir "
     "model_name_or_path checkpoint ckpt checkpoint_path checkpoint_dir load_dir file"},
    {"inputs",
     "input inputs input_file input_files input_path i files file data data_files "
     "data_path data_dir dataset dataset_path dataset_name text text_file train_file "
     "corpus path"},
    {"data", "data data_path dataset dataset_path data_dir train_data"},
};

/// Names that other programs give to the file with all settings.
constexpr std::string_view kRunFileWords =
    "config config_file config_path cfg c conf training_config job.config_file run_file "
    "toml";
/// The names of positional arguments that stand for a run's TOML file.
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
    if (dictionary::word_name(option) == name) return {option};
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

/// Returns how a run file is given to the verb, or nothing if the flag is no name for
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
          "one of a YAML of nanotron, axolotl, TRL or LLaMA-Factory",
          flag.word, file);
    }
    return fmt::format(
        "{} is no option; the run's file is given without an option: {} {}", flag.word,
        verb.name, file);
  }
  return std::nullopt;
}

/// Returns how the value of a flag is given to the verb, if the verb takes such a
/// value as a positional argument.
std::optional<std::string> as_place(const NamedVerb& verb, const UnknownFlag& flag) {
  std::string usage = verb.name;
  std::string place;
  for (const CLI::Option* option : verb.app->get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_single_name();
    const bool meant =
        place.empty() && std::ranges::any_of(kPlaceWords, [&](const PlaceWord& word) {
          return has_word(word.places, name) && has_word(word.names, flag.name);
        });
    if (meant) place = name;
    std::string shown = meant ? flag.value : "";
    if (shown.empty()) {
      for (const char c : name) {
        shown += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      }
    }
    usage += " " + shown;
  }
  if (place.empty()) return std::nullopt;
  return fmt::format("{} is no option of {}; its value is given without an option: {}",
                     flag.word, verb.name, usage);
}

/// Returns what the verb has in place of the flag of another program, or nothing.
std::optional<std::string> as_answer(const NamedVerb& verb, const UnknownFlag& flag) {
  const std::string last = verb.name.substr(verb.name.rfind(' ') + 1);
  const auto say = [&](std::string_view answer) {
    return fmt::format("{} is no option of {}; {}", flag.word, verb.name, answer);
  };
  const auto* known = std::ranges::find(kShortOfSlurm, flag.word,
                                        [](const auto& one) { return one.first; });
  if (last == "submit" && known != std::end(kShortOfSlurm)) {
    return say(fmt::format("did you mean {}?", known->second));
  }
  if (flag.word == "-np" && verb.option("-n") != nullptr) {
    return say(
        fmt::format("did you mean -n{}{}?", flag.value.empty() ? "" : " ", flag.value));
  }
  const bool json = has_word("format output_format", flag.name) && flag.value == "json";
  if (json && verb.option("--json") != nullptr) return say("did you mean --json?");
  // The value of --checkpoint decides what it names: "--checkpoint 4" names a step,
  // "--checkpoint run" a directory.
  const bool number = flag.value.find_first_not_of("0123456789") == std::string::npos &&
                      !flag.value.empty() && has_word("checkpoint ckpt", flag.name);
  const std::string name = number ? "step" : flag.name;
  for (const OptionAnswer& one : kOptionAnswers) {
    if (has_word(one.verbs, last) && has_word(one.names, name)) return say(one.answer);
  }
  return std::nullopt;
}

/// Returns what a setting of a run or another trainer's flag means for the verb.
std::string as_setting(const NamedVerb& verb, const UnknownFlag& flag,
                       const dictionary::Meaning& meaning) {
  if (meaning.carry == dictionary::Carry::None) {
    return fmt::format("{} is no option{}", flag.word, dictionary::say_meaning(meaning));
  }
  if (!verb.takes_settings()) {
    const bool writes = verb.name == "longhaul new";
    return fmt::format("{} is no option: {} is a setting of a run, and {} takes none{}",
                       flag.word, fmt::join(meaning.keys, " or "), verb.name,
                       writes ? "; change it in the file that it writes" : "");
  }
  std::vector<std::string> sets;
  const bool same = meaning.carry == dictionary::Carry::Copy;
  for (const std::string& key : meaning.keys) {
    sets.push_back(as_set(key, same ? flag.value : ""));
  }
  if (same) {
    return fmt::format("{} is no option; settings are given with --set, here {}",
                       flag.word, fmt::join(sets, " or "));
  }
  return fmt::format("{} is no option{}; settings are given as --set {}=VALUE", flag.word,
                     dictionary::say_meaning(meaning), meaning.keys.front());
}

std::string answer(const NamedVerb& verb, const UnknownFlag& flag) {
  if (const auto other = as_answer(verb, flag)) return *other;
  if (const auto options = options_meant(verb, flag.name); !options.empty()) {
    return fmt::format("{} is no option of {}; did you mean {}?", flag.word, verb.name,
                       fmt::join(options, " or "));
  }
  if (flag.word == "--set" && verb.name == "longhaul new") {
    return "--set is no option of longhaul new; change the file that it writes, or give "
           "--set to longhaul train";
  }
  if (flag.word == "--set") {
    return fmt::format(
        "--set goes with a run's TOML file, and {} takes none; see {} --help", verb.name,
        verb.name);
  }
  if (const auto file = as_run_file(verb, flag)) return *file;
  if (!verb.takes_settings()) {
    if (const auto place = as_place(verb, flag)) return *place;
  }

  RunConfig defaults;
  const std::vector<std::string> all = config::all_names(config::sections_of(defaults));
  if (const auto meaning = dictionary::meaning_of(flag.name, "", all)) {
    return as_setting(verb, flag, *meaning);
  }
  std::vector<std::string> options = long_options(verb);
  std::erase_if(options, [](const std::string& name) { return name == "--set"; });
  std::vector<std::string> names;
  for (const std::string& option : options)
    names.push_back(dictionary::word_name(option));
  if (const auto near = nearest_name(flag.name, names)) {
    const auto at = std::ranges::find(names, *near) - names.begin();
    return fmt::format("{} is no option of {}; did you mean {}?", flag.word, verb.name,
                       options[static_cast<size_t>(at)]);
  }
  std::erase_if(options, [](const std::string& name) { return name == "--help"; });
  if (!verb.takes_settings()) {
    return fmt::format("{} is no option of {}; {}; see {} --help", flag.word, verb.name,
                       options.empty()
                           ? "it has none"
                           : fmt::format("its options: {}", fmt::join(options, ", ")),
                       verb.name);
  }
  if (const auto meaning = dictionary::meaning_of_mistyped(flag.name, "", all)) {
    return as_setting(verb, flag, *meaning);
  }
  return fmt::format(
      "{} is no option; settings are given as --set section.key=value, and `longhaul "
      "config` lists them all{}",
      flag.word,
      options.empty()
          ? ""
          : fmt::format("; options of {}: {}", verb.name, fmt::join(options, ", ")));
}

/// Returns what a word means that gives a setting without --set: "trainer.max_steps=10",
/// "++run.steps=10", or "run.steps" before its value. Returns nothing for other words.
std::optional<std::string> as_override(const NamedVerb& verb, const std::string& word,
                                       const std::string& next) {
  RunConfig defaults;
  const std::vector<std::string> all = config::all_names(config::sections_of(defaults));
  const std::string bare =
      word.substr(std::min(word.find_first_not_of("+~"), word.size()));
  const size_t equals = bare.find('=');
  UnknownFlag flag{bare.substr(0, equals), "", next};
  if (equals != std::string::npos) flag.value = bare.substr(equals + 1);
  if (std::ranges::find(all, flag.word) != all.end()) {
    return fmt::format(
        "{} is no option; each setting has a --set of its own: {}", word,
        equals == std::string::npos ? as_set(flag.word, flag.value) : "--set " + bare);
  }
  if (equals == std::string::npos || flag.word.find('/') != std::string::npos) {
    return std::nullopt;
  }
  flag.name = dictionary::word_name(flag.word);
  const auto meaning = dictionary::meaning_of(flag.name, "", all);
  if (!meaning) return std::nullopt;
  return as_setting(verb, flag, *meaning);
}

/// Returns whether a word looks like an option: "--steps", "-c", but not "-1" or "-".
bool is_flag(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const char first = word[1] == '-' ? (word.size() > 2 ? word[2] : '-') : word[1];
  return std::isalpha(static_cast<unsigned char>(first)) != 0;
}

}  // namespace

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

std::optional<std::string> setting_hint(const CLI::App& program,
                                        std::span<const std::string> words) {
  const NamedVerb verb = find_verb(program, words);
  if (verb.app == &program) return std::nullopt;
  // A group of verbs has no options of its own.
  if (!verb.app->get_subcommands({}).empty()) return std::nullopt;
  const std::span<const std::string> given = verb.words;
  std::vector<std::string> places;
  for (size_t i = 0; i < given.size() && given[i] != "--"; ++i) {
    const bool set_in_two = verb.takes_settings() && given[i] == "--set" &&
                            i + 2 < given.size() &&
                            given[i + 1].find('=') == std::string::npos &&
                            given[i + 1].find('.') != std::string::npos;
    if (set_in_two) {
      return fmt::format("--set takes one word: {}", as_set(given[i + 1], given[i + 2]));
    }
    if (!is_flag(given[i])) {
      const std::string next = i + 1 < given.size() ? given[i + 1] : "";
      if (verb.takes_settings()) {
        if (const auto meant = as_override(verb, given[i], next)) return meant;
      }
      places.push_back(given[i]);
      continue;
    }
    const size_t equals = given[i].find('=');
    const std::string word = given[i].substr(0, equals);
    const bool is_long = word.starts_with("--");
    const CLI::Option* const known = verb.option(is_long ? word : word.substr(0, 2));
    if (known != nullptr && word != "-np") {
      const bool apart = is_long ? equals == std::string::npos : word.size() == 2;
      // The next word is the option's value.
      if (apart && known->get_items_expected_max() > 0) ++i;
      continue;
    }
    UnknownFlag flag{word, dictionary::word_name(word), ""};
    if (equals != std::string::npos) {
      flag.value = given[i].substr(equals + 1);
    } else if (i + 1 < given.size() && !is_flag(given[i + 1])) {
      flag.value = given[i + 1];
    }
    return answer(verb, flag);
  }
  const bool verb_again = verb.name == "longhaul launch" && places.size() > 1 &&
                          has_word("longhaul train", places[0]);
  if (verb_again) {
    return fmt::format("launch starts longhaul train by itself: longhaul launch {}",
                       places.back());
  }
  return std::nullopt;
}

}  // namespace longhaul::apps
