#include "longhaul/translate/translate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/load.h"
#include "longhaul/objects/address_problem.h"
#include "longhaul/translate/command_line.h"
#include "longhaul/translate/flag_rules.h"
#include "longhaul/translate/yaml_reader.h"

namespace longhaul::translate {
namespace {

using dictionary::Carry;
using dictionary::OtherSystem;
using dictionary::OtherWord;

constexpr uint64_t kMostBytes = uint64_t{4} << 20;
constexpr size_t kMostName = 100;
constexpr size_t kMostSettings = 10'000;
constexpr const char* kFileName = "run.toml";

void check_text(const std::string& text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    fail_input("flags", "{}: is empty; expected a command line or a training file", name);
  }
  const size_t zero = text.find('\0');
  const auto bad = find_invalid_utf8(text);
  if (zero != std::string::npos || bad) {
    fail_input("flags",
               "{}: is no text (byte {}); expected a command line or a training file",
               name, std::min(zero, bad.value_or(zero)));
  }
  // A secret is refused, since the run file and the warnings repeat the settings.
  size_t number = 0;
  for (const std::string_view line : lines_of(text)) {
    ++number;
    if (const std::string problem = objects::secret_problem(line); !problem.empty()) {
      fail_input("flags", "{}:{}: {}", name, number, problem);
    }
  }
}

bool has_section(const config::Table& table, std::string_view name) {
  const config::Entry* const entry = config::find(table, name);
  return entry != nullptr && std::holds_alternative<config::Table>(entry->value.data);
}

void read_toml_file(const std::string& text, const std::string& name, Source& source) {
  const config::Table table = config::parse_toml(text, name);
  if (!has_section(table, "training") && has_section(table, "run") &&
      has_section(table, "data")) {
    fail_input("flags",
               "{}: is a run file of longhaul already; `longhaul config` checks it",
               name);
  }
  if (!has_section(table, "training")) {
    fail_input("flags",
               "{}: has no section [training], which torchtitan's files have; no other "
               "system's TOML is known",
               name);
  }
  source.system = OtherSystem::Torchtitan;
  source.said = said_of(table);
}

void read_yaml_file(const std::string& text, const std::string& name, Source& source) {
  source.said = read_yaml(text, name);
  const auto has = [&](std::string_view prefix) {
    return std::ranges::any_of(source.said, [&](const Said& said) {
      return said.name == prefix || said.name.starts_with(std::string(prefix) + ".");
    });
  };
  const bool trainer = has("model_name_or_path");
  if (source.system == OtherSystem::Trl || source.system == OtherSystem::LlamaFactory) {
    return;  // the command says it
  }
  if (has("base_model")) {
    source.system = OtherSystem::Axolotl;
  } else if (trainer && (has("stage") || has("finetuning_type") || has("cutoff_len") ||
                         has("template"))) {
    source.system = OtherSystem::LlamaFactory;
  } else if (trainer && (has("dataset_name") || has("datasets"))) {
    source.system = OtherSystem::Trl;
  } else if (has("parallelism") && has("tokens")) {
    source.system = OtherSystem::Nanotron;
  } else {
    fail_input("flags",
               "{}: is YAML of no system that is known: nanotron's files have "
               "parallelism and tokens, axolotl's base_model, LLaMA-Factory's "
               "model_name_or_path and stage, TRL's model_name_or_path and dataset_name",
               name);
  }
}

/// The form of a text, by its name and content.
enum class Form { Toml, Yaml, CommandLine };

bool line_begins(std::string_view text, bool (*fits)(std::string_view)) {
  for (std::string_view line : lines_of(text)) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.empty() && line[0] != '#') return fits(line);
  }
  return false;
}

Form form_of(const std::string& text, const std::string& path) {
  if (path.ends_with(".toml")) return Form::Toml;
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return Form::Yaml;
  if (path.ends_with(".sh") || path.ends_with(".sbatch")) return Form::CommandLine;
  if (line_begins(text, [](std::string_view line) { return line[0] == '['; }))
    return Form::Toml;
  const auto key = [](std::string_view line) {
    const size_t colon = line.find(':');
    return line == "---" || (colon != std::string_view::npos && colon > 0 &&
                             line.find_first_of(" \t=") > colon);
  };
  return line_begins(text, key) ? Form::Yaml : Form::CommandLine;
}

std::string read_file_text(const std::string& path) {
  if (!fs::exists(path)) throw InputError("flags", missing_path(path));
  if (fs::is_directory(path)) {
    fail_input("flags",
               "{}: a directory; expected a file with a command line or a training file",
               path);
  }
  std::string text = read_text(path, kMostBytes);
  check_text(text, path);
  return text;
}

void read_settings_text(const std::string& text, const std::string& path, Form form,
                        Source& source) {
  form == Form::Toml ? read_toml_file(text, path, source)
                     : read_yaml_file(text, path, source);
  source.what = path;
}

/// Reads a command line. Settings of a file that it names come before its flags.
Source read_commands(const std::string& text, const std::string& name,
                     const ShellSettings& settings, std::optional<int64_t> ranks) {
  std::string config_file;
  Source source = read_command_line(text, name, settings, ranks, config_file);
  if (config_file.empty()) {
    if (source.system == OtherSystem::Axolotl || source.said.empty()) {
      fail_input(
          "flags",
          "{}: {} is given no flags and no file of settings; give the command line whole",
          name, one_line(source.script));
    }
    return source;
  }
  Source file;
  file.system = source.system;
  const std::string content = read_file_text(config_file);
  read_settings_text(content, config_file, form_of(content, config_file), file);
  source.system = file.system;
  source.what = fmt::format("{} of {}", config_file, source.script);
  std::vector<Said> flags = std::move(source.said);
  source.said = std::move(file.said);
  for (Said& flag : flags) {
    // A flag such as torchtitan's --training.steps replaces the setting of the file.
    std::erase_if(source.said, [&](const Said& said) { return said.name == flag.name; });
    source.said.push_back(std::move(flag));
  }
  return source;
}

bool is_command_line(const std::string& given) {
  return given.find_first_of(" \t\n") != std::string::npos;
}

Source read_source(const std::string& given, std::optional<int64_t> ranks) {
  check_text(given, "--flags");
  std::error_code ignored;  // a text may be too long for a path
  if (is_command_line(given) && !fs::exists(given, ignored)) {
    return read_commands(given, "--flags", {}, ranks);
  }
  const std::string text = read_file_text(given);
  const Form form = form_of(text, given);
  if (form == Form::CommandLine) {
    const fs::path place = fs::absolute(given).parent_path();
    return read_commands(text, given, {.whole = true, .directory = place.string()},
                         ranks);
  }
  Source source;
  read_settings_text(text, given, form, source);
  return source;
}

/// Returns whether a flag's name says that weights are read, and the value is not "no".
bool names_weights(const Said& said) {
  constexpr std::string_view kOfWeights =
      "pretrained weights load loading restore finetune finetuned finetuning";
  constexpr std::string_view kPerhaps = "weight ckpt checkpoint init resume";
  constexpr std::string_view kPlaces = "dir path file from name folder";
  std::string words = said.name;
  std::ranges::replace(words, '_', ' ');
  std::ranges::replace(words, '.', ' ');
  bool of_weights = false;
  bool perhaps = false;
  bool place = false;
  for (const std::string& word : split_words(words)) {
    of_weights = of_weights || has_word(kOfWeights, word);
    perhaps = perhaps || has_word(kPerhaps, word);
    place = place || has_word(kPlaces, word);
  }
  const bool off =
      !said.values.empty() && has_word("0 false no off none False None", said.text());
  return !off && (of_weights || (perhaps && place));
}

/// Translates the settings, one after the other.
class Translator {
 public:
  explicit Translator(const Source& source)
      : source_(source), draft_(fmt::format("{}", fmt::join(source.hidden, " "))) {
    for (const config::SectionFields& section : config::sections_of(defaults_)) {
      for (const config::Field& field : section.fields) {
        fields_[section.name + "." + field.key] = {field.type, field.required};
      }
    }
  }

  Translation run() {
    environment();
    for (const Said& said : source_.said) translate_setting(said);
    const Job job(source_, draft_);
    rules(job);
    for (const Said* said : for_rules_) count_rule(job, *said);
    ask_for_weights();
    required();
    for (const Said& said : source_.said) {
      if (said.unset.empty()) continue;
      draft_.annotate(said.shown,
                      fmt::format("{} {} as unset", fmt::join(said.unset, ", "),
                                  said.unset.size() == 1 ? "counts" : "count"));
    }
    Translation out;
    out.carried = carried_;
    out.without_key = without_key_;
    out.unknown = unknown_;
    for (const auto& [key, line] : draft_.lines()) {
      if (line.to_fill) out.to_fill.push_back(key);
    }
    out.warnings = source_.remarks;
    for (const std::string& line : draft_.left()) {
      if (line.starts_with("CAUTION")) out.warnings.push_back(one_line(line));
    }

    out.text = head() + draft_.sections() + tail();
    check(out);
    return out;
  }

 private:
  struct KeyForm {
    std::string type;
    bool required = false;
  };

  void copy(const Said& said, const OtherWord& word) {
    for (const std::string& key : split_words(word.keys)) {
      const std::string& type = fields_.at(key).type;
      const bool path = type == "path" || key == "data.train";
      // Paths in run files refuse "~" and "$", which only a shell replaces.
      const bool meant = path && (said.text().starts_with('~') ||
                                  said.text().find('$') != std::string::npos);
      if (said.variable || meant) {
        draft_.fill(key, not_looked_up(said));
      } else if (key == "data.train") {
        draft_.put(key, sources(said.values), said.shown);
      } else {
        draft_.put(key, typed(said, type), said.shown);
      }
    }
  }

  void translate_setting(const Said& said) {
    const OtherWord* word = dictionary::find_word(source_.system, said.name);
    if (word == nullptr) {
      word = dictionary::find_word(source_.system, dictionary::word_name(said.name));
    }
    // The programs on transformers' Trainer have its common names too.
    if (word == nullptr && (source_.system == OtherSystem::Trl ||
                            source_.system == OtherSystem::LlamaFactory)) {
      word = dictionary::find_word(OtherSystem::Common, dictionary::word_name(said.name));
    }
    if (word == nullptr) return unknown(said);
    if (said.null) return;  // counts as not given

    if (word->carry == Carry::Copy) {
      copy(said, *word);
      ++carried_;
    } else if (word->carry == Carry::Rule && word->note.empty()) {
      for_rules_.push_back(&said);
    } else {
      leave(said, std::string(word->note));
    }
  }

  /// Counts a setting as carried over if a rule asked for the setting and did not note it
  /// as not carried over.
  void count_rule(const Job& job, const Said& said) {
    if (job.was_left(said.name)) {
      ++without_key_;
    } else if (job.was_read(said.name)) {
      ++carried_;
    } else {
      ++without_key_;
      draft_.leave("CAUTION: {}: no value of the run file follows from it",
                   said.as_written());
    }
  }

  void leave(const Said& said, const std::string& why) {
    ++without_key_;
    draft_.leave("{}: {}", said.as_written(), why);
  }

  void unknown(const Said& said) {
    std::vector<std::string> names;
    for (const OtherWord& word : dictionary::words_of(source_.system)) {
      std::ranges::move(split_words(word.names), std::back_inserter(names));
    }
    // For a long name no nearest name is looked for, since an edit distance costs the
    // product of both lengths.
    const auto near = said.name.size() > kMostName
                          ? std::nullopt
                          : nearest_name(dictionary::word_name(said.name), names);
    if (names_weights(said)) unknown_weights_ = &said;
    unknown_.push_back(one_line(said.as_written() +
                                (near ? fmt::format(" (did you mean {}?)", *near) : "")));
  }

  /// Translates the variables before the command. Flags override these.
  void environment() {
    for (const Said& said : source_.environment) {
      const OtherWord* const word =
          dictionary::find_word(OtherSystem::Environment, said.name);
      if (word == nullptr) {
        unknown_.push_back(
            one_line(fmt::format("{}={} (a variable)", said.shown, said.text())));
        continue;
      }
      if (word->carry == Carry::None || !word->note.empty()) {
        ++without_key_;
        draft_.leave("{}={}: {}", said.shown, said.text(), word->note);
        continue;
      }
      if (word->carry == Carry::Copy) {
        copy(said, *word);
        ++carried_;
      } else {
        ++(variable(said, *word) ? carried_ : without_key_);
      }
    }
  }

  /// Translates a variable by a rule. Returns false if the value is left out.
  bool variable(const Said& said, const OtherWord& word) {
    if (said.variable) {
      draft_.fill(split_words(word.keys).front(), said.as_written());
      return true;
    }
    constexpr std::pair<const char*, const char*> kNumbers[] = {
        {"gbs", "batch.global_size"},
        {"mbs", "batch.micro_size"},
        {"pp_degree", "parallel.pp"},
        {"tp_degree", "parallel.tp"},
        {"batch_size", "batch.micro_size"},
        {"train_batch_size", "batch.micro_size"},
        {"shard_degree", "parallel.shard_group"}};
    for (const auto& [name, key] : kNumbers) {
      if (said.name != name) continue;
      draft_.put(key, whole_of(said, said.text()), said.shown);
      return true;
    }
    if (said.name == "vpp_degree") {
      const int64_t stages = whole_of(said, said.text());
      if (stages < 2) return true;
      draft_.put("parallel.virtual_stages", stages, said.shown);
      draft_.put("parallel.pipeline", "interleaved", said.shown);
    } else if (said.name == "use_zero_1") {
      draft_.put("parallel.zero", int64_t{truth_of(said) ? 1 : 0}, said.shown);
    } else {
      draft_.leave("{}={}: {} takes its place", said.shown, said.text(),
                   fmt::join(split_words(word.keys), ", "));
      return false;
    }
    return true;
  }

  void rules(const Job& job) const {
    constexpr std::pair<OtherSystem, void (*)(const Job&)> kRules[] = {
        {OtherSystem::NxdPipeline, translate_nxd_pipeline},
        {OtherSystem::NxdZero, translate_nxd_zero},
        {OtherSystem::Bert, translate_bert},
        {OtherSystem::Smp, translate_smp},
        {OtherSystem::Megatron, translate_megatron},
        {OtherSystem::Torchtitan, translate_torchtitan},
        {OtherSystem::Nanotron, translate_nanotron},
        {OtherSystem::Axolotl, translate_axolotl},
        {OtherSystem::Trl, translate_trl},
        {OtherSystem::LlamaFactory, translate_llama_factory}};
    for (const auto& [system, translate_settings] : kRules) {
      if (system == source_.system) translate_settings(job);
    }
  }

  /// Asks the user for the weights if an unknown flag may name weights.
  void ask_for_weights() {
    if (unknown_weights_ == nullptr) return;
    draft_.fill("init.weights",
                "{} is not known: a Hugging Face directory of weights to begin from; "
                "delete this line for random weights",
                unknown_weights_->as_written());
  }

  /// Marks every key that a run needs and that has no value as one that the user has to
  /// fill in.
  void required() {
    const auto line = draft_.lines().find("run.dir");
    if (line == draft_.lines().end() || line->second.to_fill) {
      std::string comment = "longhaul's choice of a name; choose the run's own";
      if (line != draft_.lines().end()) {
        comment += "; theirs: " + std::get<std::string>(line->second.value.data)
                                      .substr(std::string_view("FILL IN: ").size());
      }
      draft_.put("run.dir", "runs/imported", comment);
    }
    for (const auto& [key, form] : fields_) {
      const bool length = key == "run.steps" && !draft_.has("run.epochs");
      if ((length || form.required) && !draft_.has(key)) {
        draft_.fill(key, "none of the given settings says it");
      }
    }
    if (!draft_.hidden().empty()) ask_for_hidden();
  }

  /// Asks the user for the numbers that the flags in hidden words ("${ARGS[@]}") may
  /// give.
  void ask_for_hidden() {
    for (const OtherWord& word : dictionary::words_of(source_.system)) {
      if (word.carry != Carry::Copy) continue;
      for (const std::string& key : split_words(word.keys)) {
        const std::string section = key.substr(0, key.find('.'));
        const bool number = section == "batch" || section == "parallel" ||
                            section == "optimizer" || section == "schedule";
        const bool other_form =
            (key == "schedule.warmup_fraction" && draft_.has("schedule.warmup_steps")) ||
            (key == "schedule.warmup_steps" && draft_.has("schedule.warmup_fraction"));
        if (!number || other_form || draft_.has(key)) continue;
        draft_.fill(key, "{} may say {}; delete this line where it does not",
                    draft_.hidden(), split_words(word.names).front());
      }
    }
    const bool asks = std::ranges::any_of(
        draft_.lines(), [](const auto& entry) { return entry.second.to_fill; });
    if (!asks) {
      draft_.demand("run.dir", draft_.hidden() + " may hold flags: give them as well");
    }
  }

  std::string head() const {
    std::string out =
        fmt::format("# Translated by longhaul import --flags from {}, settings of {}.\n",
                    one_line(source_.what), dictionary::system_name(source_.system));
    if (source_.world.ranks) {
      out += fmt::format(
          "# {} ranks ({}). Check it:  longhaul config run.toml --ranks {}\n",
          *source_.world.ranks, one_line(source_.world.from), *source_.world.ranks);
    } else {
      out += "# Check it:  longhaul config run.toml --ranks N\n";
    }
    for (const std::string& remark : source_.remarks)
      out += "# NOTE: " + one_line(remark) + "\n";
    return out;
  }

  std::string tail() const {
    std::string out;
    if (!draft_.left().empty()) {
      out += "\n# Not carried over:\n";
      for (const std::string& line : draft_.left()) out += "#   " + one_line(line) + "\n";
    }
    if (!unknown_.empty()) {
      out += "\n# UNKNOWN to longhaul, and so left out:\n";
      for (const std::string& line : unknown_) out += "#   " + line + "\n";
    }
    return out;
  }

  using Provisional = std::map<std::string, std::string>;

  /// Checks the file like `train`, with provisional values for keys to fill in. Returns
  /// why `train` would refuse it, or an empty text.
  std::string refusal(const std::string& text, const Provisional& values,
                      std::vector<std::string>& warnings) const {
    std::vector<std::string> sets;
    for (const auto& [key, value] : values)
      sets.push_back(fmt::format("{}={}", key, value));
    try {
      const LoadedConfig loaded = parse_run_config(text, kFileName, sets);
      warnings = loaded.warnings;
      if (source_.world.ranks) derive_batch(loaded.config, *source_.world.ranks);
    } catch (const ConfigError& error) {
      return error.message();
    }
    return "";
  }

  /// Judges the file by the rules in which no provisional value takes part. A provisional
  /// value takes part in a rule if another value in its place changes what the rule says.
  void check(Translation& out) const {
    constexpr int kMostRounds = 8;
    const Provisional first = draft_.provisional(false);
    const Provisional second = draft_.provisional(true);
    Provisional values = first;
    for (int round = 0; round < kMostRounds; ++round) {
      std::vector<std::string> warnings;
      const std::string refused = refusal(out.text, values, warnings);
      std::vector<std::string> seen = std::move(warnings);
      std::erase_if(seen,
                    [](const std::string& one) { return one.starts_with("--set"); });
      if (refused.empty() && seen.empty()) return;
      Provisional next = values;
      for (const auto& [key, value] : values) {
        Provisional changed = values;
        changed[key] = value == first.at(key) ? second.at(key) : first.at(key);
        std::vector<std::string> others;
        const std::string now = refusal(out.text, changed, others);
        if (refused.empty() && now.empty()) {
          std::erase_if(seen, [&](const std::string& warning) {
            return std::ranges::count(others, warning) == 0;
          });
        } else if (now != refused && (next == values || now.empty())) {
          next = std::move(changed);
        }
      }
      if (refused.empty()) {
        std::ranges::move(seen, std::back_inserter(out.warnings));
        return;
      }
      if (next == values) {
        out.refused = refused;
        return;
      }
      values = std::move(next);
    }
  }

  const Source& source_;
  RunConfig defaults_;
  std::map<std::string, KeyForm> fields_;
  Draft draft_;
  std::vector<const Said*> for_rules_;
  int64_t carried_ = 0;
  int64_t without_key_ = 0;
  std::vector<std::string> unknown_;
  const Said* unknown_weights_ = nullptr;
};

}  // namespace

Translation translate(const std::string& given, std::optional<int64_t> ranks) {
  Source source = read_source(given, ranks);
  if (source.said.size() > kMostSettings) {
    fail_input("flags", "{} settings; a training has at most {}", source.said.size(),
               kMostSettings);
  }
  if (ranks) source.world = {ranks, "--ranks"};
  if (!source.world.ranks && source.system == OtherSystem::Nanotron) {
    // The product of a nanotron file's degrees of parallelism is the number of ranks.
    Draft none;
    const Job job(source, none);
    int64_t product = 1;
    for (const char* name : {"dp", "pp", "tp", "context_parallel_size"}) {
      product *= std::clamp<int64_t>(
          job.whole(std::string("parallelism.") + name, 1).value_or(1), 1, 1'000'000);
      if (product > 1'000'000'000) return Translator(source).run();
    }
    source.world = {product, "dp * pp * tp of the file"};
  }
  return Translator(source).run();
}

}  // namespace longhaul::translate
