#include "apps/setting_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/other_words.h"

namespace longhaul::apps {
namespace {

/// "--Batch-Size=8" as "batch_size" and "8".
struct Flag {
  std::string name;
  std::string value;
};

Flag read_flag(const std::string& word, const std::string& next) {
  Flag flag;
  const size_t equals = word.find('=');
  flag.name = config::word_name(word.substr(0, equals));
  if (equals != std::string::npos) {
    flag.value = word.substr(equals + 1);
  } else if (!next.starts_with("--")) {
    flag.value = next;
  }
  return flag;
}

std::vector<std::string> settings_named(const std::string& name) {
  if (config::find_word(config::OtherSystem::Common, name) != nullptr) {
    return config::keys_of_word(name);
  }
  RunConfig defaults;
  const std::vector<std::string> all = config::all_names(config::sections_of(defaults));
  std::vector<std::string> last_parts;
  std::vector<std::string> found;
  for (const std::string& full : all) {
    last_parts.push_back(full.substr(full.find('.') + 1));
    if (full == name || last_parts.back() == name) found.push_back(full);
  }
  if (found.empty()) found = config::keys_of_word(name);
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
    if (const auto why = config::why_no_key(flag.name); sets.empty() && why) {
      return fmt::format(
          "{} is no option; other trainers have it, and no setting takes its "
          "place: {}",
          words[i].substr(0, words[i].find('=')), *why);
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
