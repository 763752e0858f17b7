#include "longhaul/config/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"
#include "longhaul/config/value.h"
#include "longhaul/dictionary/words.h"
#include "longhaul/objects/address_problem.h"
#include "longhaul/run/files.h"

namespace longhaul {
namespace {

using namespace config;

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

const SectionFields* find_section(const std::vector<SectionFields>& sections,
                                  std::string_view name) {
  const auto found = std::ranges::find(sections, name, &SectionFields::name);
  return found == sections.end() ? nullptr : &*found;
}

[[noreturn]] void fail_section(const Entry& entry,
                               const std::vector<SectionFields>& sections) {
  std::vector<std::string> names;
  names.reserve(sections.size());
  for (const SectionFields& section : sections) names.push_back(section.name);
  if (!std::holds_alternative<Table>(entry.value.data)) {
    const auto meaning = dictionary::meaning_of_mistyped(dictionary::word_name(entry.key),
                                                         "", all_names(sections));
    fail_at(
        entry.where, "key {} stands outside any section{}", entry.key,
        meaning ? dictionary::say_meaning(*meaning) : "; write it below its [section]");
  }
  std::string message = fmt::format("unknown section [{}]", entry.key);
  const bool theirs = std::ranges::any_of(
      dictionary::words_of(dictionary::OtherSystem::Torchtitan),
      [&](const dictionary::OtherWord& word) {
        return std::ranges::any_of(split_words(word.names), [&](const auto& name) {
          return name.starts_with(entry.key + ".");
        });
      });
  if (theirs) {
    message +=
        ", which torchtitan's files have: `longhaul import --flags FILE` makes a run "
        "file";
  } else if (const auto nearest = nearest_name(entry.key, names)) {
    fail_at(entry.where, "{}; did you mean [{}]?", message, *nearest);
  }
  message += dictionary::other_section_hint(entry.key);
  fail_at(entry.where, "{}; valid sections: {}", message, fmt::join(names, ", "));
}

/// Removes a key from the tree, as if the file did not have it. Throws ConfigError for a
/// key that does not exist.
void unset(Table& root, const std::vector<std::string>& path, const std::string& where,
           const std::vector<std::string>& names) {
  const std::string key = path[0] + "." + path[1];
  if (std::ranges::count(names, key) == 0) {
    auto meaning = dictionary::meaning_of(dictionary::word_name(path[1]), path[0], names);
    if (!meaning) meaning = dictionary::meaning_of_mistyped(key, "", names);
    fail_at(where, "unknown key {}{}", key,
            meaning ? dictionary::say_meaning(*meaning) : "");
  }
  Table* table = &root;
  for (size_t i = 0; table != nullptr && i < path.size(); ++i) {
    Entry* const entry = find(*table, path[i]);
    if (entry == nullptr) return;
    if (i + 1 == path.size()) {
      table->erase(table->begin() + (entry - table->data()));
      return;
    }
    table = std::get_if<Table>(&entry->value.data);
  }
}

/// Returns the index of the comma in "10,optimizer.lr=3", behind which another setting
/// stands, or 0.
size_t next_setting(const std::string& argument, size_t begin,
                    const std::vector<std::string>& names) {
  for (size_t comma = argument.find(',', begin); comma != std::string::npos;
       comma = argument.find(',', comma + 1)) {
    const size_t equals = argument.find('=', comma);
    if (equals == std::string::npos) return 0;
    const std::string key = argument.substr(comma + 1, equals - comma - 1);
    if (std::ranges::find(names, key) != names.end()) return comma;
  }
  return 0;
}

/// Splits "section.key=value" and stores the value in the tree as if it stood in the
/// file. Without a value the key is removed.
void apply_set(Table& root, const std::string& argument,
               const std::vector<std::string>& names) {
  const size_t equals = argument.find('=');
  if (const std::string problem = objects::secret_problem(argument); !problem.empty()) {
    // The text before the first = is the key, which the message names. Without a key it
    // is a part of an address, which may hold the secret.
    const std::string key = argument.substr(0, equals);
    fail_at(key.find(":/") == std::string::npos ? "--set " + key : "--set", problem);
  }
  const std::string where = "--set " + argument;
  if (equals == std::string::npos || equals == 0) {
    fail_at(where, "expected section.key=value");
  }
  std::vector<std::string> path(1);
  for (const char c : argument.substr(0, equals)) {
    if (c == '.') {
      path.emplace_back();
    } else if (c != ' ') {
      path.back() += c;
    }
  }
  if (const size_t begin = argument.find_first_not_of("-+~"); begin > 0) {
    fail_at(where, "a key stands without {} before it: --set {}",
            argument.substr(0, begin), argument.substr(begin));
  }
  if (path.size() < 2 || std::ranges::any_of(path, &std::string::empty)) {
    const auto meaning = path.size() == 1 ? dictionary::meaning_of_mistyped(
                                                dictionary::word_name(path[0]), "", names)
                                          : std::nullopt;
    fail_at(where, "\"{}\" is not a key; expected section.key=value{}",
            argument.substr(0, equals), meaning ? dictionary::say_meaning(*meaning) : "");
  }
  if (argument.find_first_not_of(' ', equals + 1) == std::string::npos) {
    return unset(root, path, where, names);
  }
  Table* table = &root;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    Entry* entry = find(*table, path[i]);
    if (!entry) {
      table->push_back({path[i], where, {Table{}, where}});
      entry = &table->back();
    }
    table = std::get_if<Table>(&entry->value.data);
    if (!table) fail_at(where, "{} is not a table", path[i]);
  }
  if (const size_t next = next_setting(argument, equals + 1, names)) {
    fail_at(where, "each setting has a --set of its own: --set {} --set {}",
            argument.substr(0, next), argument.substr(next + 1));
  }
  Value value = parse_toml_value(argument.substr(equals + 1), where);
  if (Entry* entry = find(*table, path.back())) {
    *entry = {path.back(), where, std::move(value)};
  } else {
    table->push_back({path.back(), where, std::move(value)});
  }
}

void require_keys(const std::vector<SectionFields>& sections, const Table& root,
                  std::string_view file) {
  std::vector<std::string> missing;
  std::string where = fmt::format("{}:1:1", file);
  for (const SectionFields& section : sections) {
    const Entry* entry = find(root, section.name);
    for (const Field& field : section.fields) {
      if (!field.required) continue;
      if (entry && find(std::get<Table>(entry->value.data), field.key)) continue;
      if (entry && missing.empty() && !entry->where.starts_with("--set")) {
        where = entry->where;
      }
      missing.push_back(
          fmt::format("{}.{} ({})", section.name, field.key, field.meaning));
    }
  }
  if (missing.empty()) return;
  fail_at(where, "required and not given: {}", fmt::join(missing, ", "));
}

}  // namespace

LoadedConfig parse_run_config(std::string_view text, std::string_view name,
                              std::span<const std::string> sets) {
  Table root = parse_toml(text, name);
  LoadedConfig loaded;
  RunConfig& config = loaded.config;
  const std::vector<SectionFields> sections = sections_of(config);
  const std::vector<std::string> names = all_names(sections);
  for (const std::string& set : sets) apply_set(root, set, names);
  for (const Entry& entry : root) {
    const SectionFields* section = find_section(sections, entry.key);
    const Table* table = std::get_if<Table>(&entry.value.data);
    if (!section || !table) {
      if (section) fail_at(entry.where, "{} must be a [section]", entry.key);
      fail_section(entry, sections);
    }
    set_fields(section->fields, *table, section->name, names);
    for (const Entry& item : *table) {
      config.origins[section->name + "." + item.key] = item.value.where;
    }
  }
  config.origins[""] = fmt::format("{}:1:1", name);
  require_keys(sections, root, name);
  resolve(config);
  loaded.warnings = check_rules(config);
  return loaded;
}

LoadedConfig load_run_config(const fs::path& file, std::span<const std::string> sets) {
  if (!fs::exists(file)) {
    fail_input("config",
               "{}; expected a run's TOML file (`longhaul recipe list` shows some)",
               missing_path(file));
  }
  if (fs::is_directory(file)) {
    std::string advice = " (`longhaul recipe list` shows some)";
    if (fs::exists(file / run::kConfigFile)) {
      advice = ", for example that of this run, " + (file / run::kConfigFile).string();
    } else if (fs::exists(file / "config.json")) {
      advice =
          fmt::format("; `longhaul new {} DATA --out run.toml` makes one for this model",
                      file.string());
    }
    fail_input("config", "{}: a directory; expected a run's TOML file{}", file.string(),
               advice);
  }
  return parse_run_config(read_text(file, kMaxConfigBytes), file.string(), sets);
}

}  // namespace longhaul
