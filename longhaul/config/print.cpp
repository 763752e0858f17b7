#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/load.h"
#include "longhaul/config/rules.h"

namespace longhaul {
namespace {

using namespace config;

constexpr size_t kMaxLine = 90;

/// Prints a key and its value. A long array has one item per line.
std::string print_setting(const std::string& key, const Value& value) {
  const std::string head = print_key(key) + " = ";
  const std::string line = head + print_value(value);
  const Array* items = std::get_if<Array>(&value.data);
  if (!items || line.size() <= kMaxLine) return line + "\n";
  std::string out = head + "[\n";
  for (const Value& item : *items) out += "  " + print_value(item) + ",\n";
  return out + "]\n";
}

/// Returns whether a setting is written. A setting of which this version implements one
/// value only belongs to a feature that does not exist yet.
bool is_written(const Field& field) { return field.built.size() != 1; }

std::string print(const RunConfig& config, bool comments) {
  RunConfig copy = config;
  std::string out;
  for (const SectionFields& section : sections_of(copy)) {
    std::string body;
    for (const Field& field : section.fields) {
      if (!is_written(field)) continue;
      if (const auto value = field.get()) {
        body += print_setting(field.key, *value);
      } else if (comments) {
        body += fmt::format("# {} is not given: {}\n", field.key, field.absent);
      }
    }
    if (body.empty()) continue;
    out += fmt::format("{}[{}]\n{}", out.empty() ? "" : "\n", section.name, body);
  }
  return out;
}

std::string text_of(const Field& field) {
  const auto value = field.get();
  return value ? print_value(*value) : std::string("(not given)");
}

}  // namespace

std::string to_toml(const RunConfig& config) { return print(config, true); }

std::string schedule_to_toml(const ScheduleSection& schedule) {
  ScheduleSection copy = schedule;
  std::string out;
  for (const Field& field : fields_of(copy)) {
    if (const auto value = field.get()) out += print_setting(field.key, *value);
  }
  return out;
}

ScheduleSection schedule_from_toml(std::string_view text, std::string_view name) {
  ScheduleSection schedule;
  set_fields(fields_of(schedule), parse_toml(text, name), "schedule");
  return schedule;
}

std::string to_json_text(const RunConfig& config) {
  RunConfig copy = config;
  Table root;
  for (const SectionFields& section : sections_of(copy)) {
    Fields written;
    for (const Field& field : section.fields) {
      if (is_written(field)) written.push_back(field);
    }
    if (written.empty()) continue;
    root.push_back({section.name, "", {get_fields(written), ""}});
  }
  return print_json({std::move(root), ""});
}

std::string config_hash(const RunConfig& config) {
  return hash_hex(print(config, false));
}

std::vector<std::string> as_sets(const RunConfig& config,
                                 std::span<const std::string> keys) {
  RunConfig copy = config;
  std::vector<std::string> sets;
  for (const SectionFields& section : sections_of(copy)) {
    for (const Field& field : section.fields) {
      const std::string key = section.name + "." + field.key;
      if (std::ranges::count(keys, key) == 0) continue;
      if (const auto value = field.get()) sets.push_back(key + "=" + print_value(*value));
    }
  }
  return sets;
}

void copy_settings(const RunConfig& from, RunConfig& to,
                   std::span<const std::string> keys) {
  RunConfig copy = from;
  const std::vector<SectionFields> source = sections_of(copy);
  const std::vector<SectionFields> target = sections_of(to);
  for (size_t s = 0; s < source.size(); ++s) {
    for (size_t f = 0; f < source[s].fields.size(); ++f) {
      const Field& field = source[s].fields[f];
      const std::string key = source[s].name + "." + field.key;
      if (std::ranges::count(keys, key) == 0) continue;
      if (const auto value = field.get()) target[s].fields[f].set(*value, key);
    }
  }
}

std::string chosen_text(const RunConfig& config) {
  const std::optional<ChosenLayout>& chosen = config.parallel.chosen;
  if (!chosen || !config.parallel.auto_) return "";
  std::string text;
  for (std::string set : as_sets(config, chosen->settings)) {
    std::erase(set, '"');
    const size_t equals = set.find('=');
    const size_t dot = set.find('.');
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        set.substr(dot + 1, equals - dot - 1), set.substr(equals + 1));
  }
  return fmt::format("auto chose: {}; {:.4g} s a step predicted, on {} of {}",
                     text.empty() ? "nothing, all is given" : text, chosen->step_s,
                     counted(chosen->ranks, "rank"), chosen->hardware);
}

std::vector<ConfigChange> diff_configs(const RunConfig& old_config,
                                       const RunConfig& new_config) {
  RunConfig old_copy = old_config;
  RunConfig new_copy = new_config;
  const std::vector<SectionFields> before = sections_of(old_copy);
  const std::vector<SectionFields> after = sections_of(new_copy);
  std::vector<ConfigChange> changes;
  for (size_t s = 0; s < before.size(); ++s) {
    for (size_t f = 0; f < before[s].fields.size(); ++f) {
      const Field& field = after[s].fields[f];
      std::string old_value = text_of(before[s].fields[f]);
      std::string new_value = text_of(field);
      if (old_value == new_value) continue;
      changes.push_back({before[s].name + "." + field.key, std::move(old_value),
                         std::move(new_value), field.resume});
    }
  }
  return changes;
}

std::vector<ConfigChange> check_resume(const RunConfig& saved, const RunConfig& now) {
  std::vector<ConfigChange> logged;
  std::string message;
  std::string where;
  for (ConfigChange& change : diff_configs(saved, now)) {
    if (change.resume == ResumeClass::Logged) {
      logged.push_back(std::move(change));
    } else if (change.resume == ResumeClass::Match) {
      if (message.empty()) where = origin(now, change.key);
      message += fmt::format("{}{} = {}, but the checkpoint was made with {}",
                             message.empty() ? "" : "; ", change.key, change.new_value,
                             change.old_value);
    }
  }
  if (!message.empty()) {
    fail_at(where,
            message + "; a resume must keep it (or start a new run with init.weights)");
  }
  return logged;
}

}  // namespace longhaul
