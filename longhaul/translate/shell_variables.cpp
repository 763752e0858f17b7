#include "longhaul/translate/shell_variables.h"

#include <algorithm>

#include "longhaul/base/text.h"

namespace longhaul::translate {
namespace {

size_t name_size(std::string_view text) {
  if (text.empty() || is_digit(text[0])) return 0;
  return static_cast<size_t>(std::ranges::find_if_not(text, is_word_character) -
                             text.begin());
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool begins_with_command(std::string_view text) {
  return text.starts_with("$(") || text.starts_with('`');
}

/// Returns the parts of a text between blanks. "$(a b)" and "${a b}" are one part each.
ShellCommand fields_of(const ShellWord& word) {
  ShellCommand fields;
  std::string field;
  const auto end_field = [&] {
    if (field.empty()) return;
    const bool variable =
        word.variable &&
        (field.find_first_of("$`") != std::string::npos || field.starts_with('~'));
    fields.push_back({std::move(field), variable, false});
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

}  // namespace

size_t assigned_name_size(std::string_view text) {
  const size_t size = name_size(text);
  const std::string_view rest = text.substr(size);
  return rest.starts_with('=') || rest.starts_with("+=") ? size : 0;
}

void ShellVariables::set(std::string_view word, ShellCommand value, bool conditional) {
  const size_t size = assigned_name_size(word);
  const std::string name(word.substr(0, size));
  const bool append = word[size] == '+';
  const bool certain = !conditional && depth_ == 0;
  const auto found = values_.find(name);
  if (!append) {
    if (certain) {
      values_[name] = std::move(value);
    } else if (found != values_.end()) {
      values_.erase(found);
    }
    return;
  }
  if (found == values_.end()) return;
  // A value that a condition may extend stays a variable.
  if (!certain) {
    found->second.push_back({"${" + name + "[@]}", true, false});
    return;
  }
  std::ranges::move(value, std::back_inserter(found->second));
}

void ShellVariables::set_array(std::string_view target, ShellCommand words,
                               bool conditional) {
  set(target, std::move(words), conditional);
}

void ShellVariables::change_depth(const ShellCommand& command, size_t first) {
  if (first < command.size()) {
    const std::string& word = command[first].text;
    if (is_one_of(word, {"if", "for", "while", "until", "case", "select"})) ++depth_;
    if (is_one_of(word, {"fi", "done", "esac"})) --depth_;
  }
  for (const ShellWord& word : command) {
    if (word.quoted) continue;
    depth_ += (word.text == "{" ? 1 : 0) - (word.text == "}" ? 1 : 0);
  }
  depth_ = std::max(depth_, 0);
}

bool ShellVariables::set_by_other_means(const ShellCommand& command, size_t first) {
  const std::string& word = command[first].text;
  if (is_one_of(word, {"for", "select", "read", "unset", "getopts", "mapfile",
                       "readarray", "printf"})) {
    for (size_t i = first + 1; i < command.size(); ++i) values_.erase(command[i].text);
    return true;
  }
  if (!is_one_of(word, {"source", ".", "eval"})) return false;
  // A sourced file or a command may set anything, but a Python environment sets no flags.
  if (word == "eval" || !command.back().text.ends_with("activate")) values_.clear();
  return true;
}

void ShellVariables::note(const ShellCommand& command, bool conditional) {
  size_t at = 0;
  while (at < command.size() &&
         is_one_of(command[at].text, {"then", "do", "else", "{", "!", "time"})) {
    ++at;
  }
  change_depth(command, at);
  if (at >= command.size() || set_by_other_means(command, at)) return;
  if (is_one_of(command[at].text,
                {"export", "declare", "local", "readonly", "typeset"})) {
    ++at;
    while (at < command.size() && command[at].text.starts_with('-')) ++at;
  }
  const bool assigns = std::all_of(command.begin() + static_cast<ptrdiff_t>(at),
                                   command.end(), [](const ShellWord& word) {
                                     return assigned_name_size(word.text) > 0 ||
                                            name_size(word.text) == word.text.size();
                                   });
  // "NAME=value command" sets the variable for that command only.
  if (!assigns || assigned_name_size(command.back().text) == 0) {
    if (depth_ == 0 && !conditional) return;
    conditional = true;
  }
  for (; at < command.size(); ++at) {
    const ShellWord& word = command[at];
    const size_t size = assigned_name_size(word.text);
    if (size == 0) continue;
    const size_t value = word.text.find('=') + 1;
    const bool append = word.text[size] == '+';
    ShellWord text{word.text.substr(value), word.variable, word.quoted};
    const auto found = values_.find(word.text.substr(0, size));
    const bool certain = !conditional && depth_ == 0;
    if (append && certain && found != values_.end() && !found->second.empty()) {
      // NAME+=text appends to the text.
      found->second.front().text += text.text;
      found->second.front().variable = found->second.front().variable || text.variable;
      continue;
    }
    set(word.text, {std::move(text)}, conditional);
  }
}

std::optional<ShellCommand> ShellVariables::find(std::string_view piece,
                                                 bool quoted) const {
  std::string_view body = piece.substr(1);
  if (body.starts_with('{')) body = body.substr(1, body.size() - 2);
  const size_t size = name_size(body);
  const std::string_view form = body.substr(size);
  const auto found = values_.find(body.substr(0, size));
  if (size == 0 || found == values_.end()) return std::nullopt;
  const ShellCommand& value = found->second;
  const bool all = form == "[@]" || form == "[*]";
  // ${NAME:-otherwise} is the value of NAME, if there is one.
  const bool otherwise = (form.starts_with(":-") || form.starts_with(":=")) &&
                         !value.empty() && !value.front().text.empty() &&
                         !value.front().variable;
  if (!form.empty() && !all && !otherwise) return std::nullopt;
  if (std::ranges::any_of(value, [](const ShellWord& word) {
        return word.variable && begins_with_command(word.text);
      })) {
    return std::nullopt;  // the name says more than the command
  }
  ShellCommand words = value;
  if (!all && words.size() > 1) {
    // Take the first element. A text that a condition may have extended is uncertain.
    if (words.back().variable) return std::nullopt;
    words.resize(1);
  }
  if (quoted) return words;
  ShellCommand fields;
  for (const ShellWord& word : words) {
    std::ranges::move(fields_of(word), std::back_inserter(fields));
  }
  return fields;
}

}  // namespace longhaul::translate
