#include "longhaul/translate/shell_variables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::translate {
namespace {

constexpr size_t kMostCopied = size_t{64} << 20;
constexpr size_t kMostChoices = 240;
constexpr size_t kMostOfAChoice = 60;
constexpr size_t kMostUnset = 32;

/// Variables that a login, the scheduler or the shell sets, whatever the script does.
constexpr std::string_view kSetElsewhere =
    "SLURM_* SLURMD_* OMPI_* PMI_* PMIX_* PBS_* LSB_* SGE_* AWS_BATCH_* SM_* "
    "KUBERNETES_* POD_* HOME USER LOGNAME PATH PWD OLDPWD SHELL TERM LANG LC_* TMPDIR "
    "HOSTNAME HOSTTYPE UID EUID PPID RANDOM SECONDS LINENO BASH* PIPESTATUS REPLY "
    "CONDA_* VIRTUAL_ENV LD_LIBRARY_PATH WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE "
    "NODE_RANK GROUP_RANK MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES";

bool set_elsewhere(const std::string& name) {
  static const std::vector<std::string> kPatterns = split_words(kSetElsewhere);
  return std::ranges::any_of(
      kPatterns, [&](const std::string& pattern) { return glob_match(pattern, name); });
}

size_t bytes_of(const ShellValue& value) {
  size_t bytes = 64;
  for (const ShellWord& word : value.words) {
    bytes += 32 + word.text.size() + word.choices.size();
  }
  return bytes;
}

bool same(const ShellValue& a, const ShellValue& b) {
  if (!a.set || !b.set) return a.set == b.set;
  if (a.words.size() != b.words.size()) return false;
  return std::ranges::equal(a.words, b.words, [](const ShellWord& x, const ShellWord& y) {
    return x.text == y.text && x.variable == y.variable && x.value == y.value;
  });
}

/// Returns a value for a person: "--nproc_per_node 32", "unset".
std::string shown(const ShellValue& value) {
  if (!value.set) return "unset";
  std::string out;
  for (const ShellWord& word : value.words) {
    out += (out.empty() ? "" : " ") + word.text;
    if (out.size() > kMostOfAChoice) return out.substr(0, kMostOfAChoice) + "...";
  }
  return out.empty() ? "empty" : out;
}

}  // namespace

size_t shell_name_size(std::string_view text) {
  if (text.empty() || is_digit(text[0])) return 0;
  return static_cast<size_t>(std::ranges::find_if_not(text, is_word_character) -
                             text.begin());
}

ShellWords shell_fields(const ShellWord& word) {
  ShellWords fields;
  std::string field;
  const auto end_field = [&] {
    if (field.empty()) return;
    const bool variable =
        word.variable &&
        (field.find_first_of("$`") != std::string::npos || field.starts_with('~'));
    fields.push_back({.text = std::move(field),
                      .variable = variable,
                      .value = word.value,
                      .unset = word.unset,
                      .choices = variable ? word.choices : ""});
    field.clear();
  };
  int depth = 0;
  bool command = false;
  for (const char c : word.text) {
    if (c == '`') command = !command;
    if (c == '(' || c == '{') ++depth;
    if (c == ')' || c == '}') depth = std::max(depth - 1, 0);
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (blank && depth == 0 && !command) {
      end_field();
    } else {
      field += c;
    }
  }
  end_field();
  return fields;
}

ShellWord unknown_word(const std::string& name, std::string choices) {
  ShellWord word{"$" + name, true, false};
  word.choices = std::move(choices);
  return word;
}

void add_unset(std::set<std::string>& names, const std::set<std::string>& more) {
  for (const std::string& name : more) {
    if (names.size() < kMostUnset) names.insert(name);
  }
}

void add_to_word(ShellWord& word, const ShellWord& more) {
  // The number `value` stands for a whole unknown word, so a word of several parts has
  // none.
  word.value = word.text.empty() ? more.value : 0;
  word.text += more.text;
  word.variable = word.variable || more.variable;
  add_unset(word.unset, more.unset);
  if (!more.choices.empty() && word.choices.find(more.choices) == std::string::npos &&
      word.choices.size() < kMostChoices) {
    word.choices += (word.choices.empty() ? "" : "; ") + more.choices;
  }
}

void ShellVariables::spend(size_t bytes) {
  spent_ += bytes;
  if (spent_ > kMostCopied) {
    fail_input("flags",
               "{}: its variables stand for more than 64 MiB; give the command line "
               "without them",
               name_);
  }
}

void ShellVariables::set(const std::string& name, ShellValue value) {
  spend(bytes_of(value));
  for (ShellWord& word : value.words) {
    if (word.variable && word.value == 0) word.value = new_value();
  }
  const auto found = values_.find(name);
  if (!before_.empty() && !before_.back().contains(name)) {
    auto& kept = before_.back()[name];
    if (found != values_.end()) {
      spend(bytes_of(found->second));
      kept = found->second;
    }
  }
  values_[name] = std::move(value);
}

void ShellVariables::append(const std::string& name, ShellWords words, bool array) {
  ShellValue value = get(name);
  if (!value.set) {
    // The variable has no value to which the words are added. The new value depends on
    // the variables that count as unset.
    if (words.empty()) words.emplace_back();
    for (const ShellWord& word : value.words) add_unset(words[0].unset, word.unset);
    return set(name, {std::move(words)});
  }
  if (array || value.words.empty()) {
    std::ranges::move(words, std::back_inserter(value.words));
  } else if (!words.empty()) {
    add_to_word(value.words.front(), words.front());
    value.words.front().value = 0;
  }
  set(name, std::move(value));
}

void ShellVariables::forget(const std::string& name, std::string choices) {
  set(name, {{unknown_word(name, std::move(choices))}});
}

void ShellVariables::forget_all() {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) names.push_back(name);
  for (const std::string& name : names) forget(name);
  all_forgotten_ = true;
}

void ShellVariables::depend(const std::string& name, const std::set<std::string>& unset) {
  if (unset.empty()) return;
  ShellValue value = get(name);
  if (value.words.empty()) value.words.emplace_back();
  for (ShellWord& word : value.words) add_unset(word.unset, unset);
  set(name, std::move(value));
}

ShellValue ShellVariables::get(const std::string& name) {
  if (const auto found = values_.find(name); found != values_.end()) {
    spend(bytes_of(found->second));
    return found->second;
  }
  if (const auto given = settings_.scheduler.find(name);
      given != settings_.scheduler.end()) {
    return given->second ? ShellValue{{{*given->second}}} : ShellValue{{}, false};
  }
  if (!settings_.whole || all_forgotten_ || set_elsewhere(name)) {
    return {{unknown_word(name)}};
  }
  ShellWord none;
  none.unset.insert(name);
  return {{none}, false};
}

Truth ShellVariables::is_set(const std::string& name) {
  const bool known = values_.contains(name) || settings_.scheduler.contains(name);
  const ShellValue value = get(name);
  if (!value.set) return Truth::No;
  // After branches were merged, the value may be that of a branch that does not set the
  // variable.
  const bool offered = known && !value.words.empty() && value.words[0].variable &&
                       value.words[0].choices.find("unset") != std::string::npos;
  return known && !offered ? Truth::Yes : Truth::Unknown;
}

ShellVariables::Changes ShellVariables::end_branch() {
  Changes changes;
  for (auto& [name, old] : before_.back()) {
    changes[name] = std::move(values_[name]);
    if (old) {
      values_[name] = std::move(*old);
    } else {
      values_.erase(name);
    }
  }
  before_.pop_back();
  return changes;
}

ShellValue ShellVariables::joined(
    const std::string& name,
    const std::vector<std::pair<std::string, ShellValue>>& values) {
  const ShellValue& first = values.front().second;
  std::string choices;
  size_t common = first.words.size();
  ShellValue out;
  std::set<std::string> unset;
  for (const auto& [condition, value] : values) {
    for (const ShellWord& word : value.words) add_unset(unset, word.unset);
    const auto same_text = [](const ShellWord& a, const ShellWord& b) {
      return a.text == b.text && a.variable == b.variable;
    };
    const auto end = std::ranges::mismatch(first.words, value.words, same_text).in1;
    common = std::min(common, static_cast<size_t>(end - first.words.begin()));
    const std::string when = condition.empty() ? "otherwise" : "where " + condition;
    if (choices.size() < kMostChoices) {
      choices += fmt::format("{}{} {}", choices.empty() ? "" : ", ", shown(value), when);
    }
  }
  // If a condition extends an array, the elements that all branches have in front are
  // kept.
  const bool arrays = std::ranges::all_of(values, [](const auto& one) {
    return one.second.set && !one.second.words.empty();
  });
  const bool longer = std::ranges::any_of(
      values, [](const auto& one) { return one.second.words.size() > 1; });
  if (arrays && longer) {
    out.words.assign(first.words.begin(),
                     first.words.begin() + static_cast<long>(common));
  }
  ShellWord last = unknown_word(name, fmt::format("{} is {}", name, choices));
  if (!out.words.empty()) last.text = "${" + name + "[@]}";
  last.unset = std::move(unset);
  out.words.push_back(std::move(last));
  return out;
}

void ShellVariables::merge(const std::vector<Branch>& branches) {
  std::set<std::string> names;
  for (const Branch& branch : branches) {
    for (const auto& [name, value] : branch.second) names.insert(name);
  }
  spend(64 * names.size() * branches.size());
  for (const std::string& name : names) {
    std::vector<std::pair<std::string, ShellValue>> values;
    for (const auto& [condition, changes] : branches) {
      const auto found = changes.find(name);
      values.emplace_back(condition, found == changes.end() ? get(name) : found->second);
    }
    const bool all_same = std::ranges::all_of(
        values, [&](const auto& one) { return same(one.second, values[0].second); });
    ShellValue value = all_same ? values[0].second : joined(name, values);
    if (all_same && !value.words.empty()) {
      for (const auto& [condition, other] : values) {
        for (const ShellWord& word : other.words) {
          add_unset(value.words[0].unset, word.unset);
        }
      }
    }
    set(name, std::move(value));
  }
}

}  // namespace longhaul::translate
