#include "longhaul/translate/shell_expansion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>

#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::translate {
namespace {

/// Returns the number of a variable, or nothing if the number is not known.
using ShellNumber = std::function<std::optional<int64_t>(const std::string& name)>;

using Number = std::optional<int64_t>;

struct Operator {
  std::string_view sign;
  int rank;  ///< a higher rank binds closer
};

// An operator stands before the operators that it begins with, such as "<=" before "<".
constexpr Operator kOperators[] = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3},
                                   {"<=", 4}, {">=", 4}, {"<<", 0}, {">>", 0},
                                   {"<", 4},  {">", 4},  {"**", 0}, {"+", 5},
                                   {"-", 5},  {"*", 6},  {"/", 6},  {"%", 6}};
constexpr int kMostParentheses = 64;

Number joined(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  if (sign == "||") return a != 0 || b != 0 ? 1 : 0;
  if (sign == "&&") return a != 0 && b != 0 ? 1 : 0;
  if (sign == "==") return a == b ? 1 : 0;
  if (sign == "!=") return a != b ? 1 : 0;
  if (sign == "<=") return a <= b ? 1 : 0;
  if (sign == ">=") return a >= b ? 1 : 0;
  if (sign == "<") return a < b ? 1 : 0;
  if (sign == ">") return a > b ? 1 : 0;
  if (sign == "*") return checked_product(a, b);
  if (sign == "+") {
    if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
    return result;
  }
  if (sign == "-") {
    if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
    return result;
  }
  if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
  return sign == "/" ? a / b : a % b;
}

class ArithmeticReader {
 public:
  ArithmeticReader(std::string_view text, const ShellNumber& number)
      : text_(text), number_(number) {}

  Number read() {
    skip();
    if (text_.empty()) return 0;
    const Number result = choice(0);
    skip();
    return wrong_ || !text_.empty() ? std::nullopt : result;
  }

 private:
  void skip() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
  }

  bool take(std::string_view sign) {
    skip();
    if (!text_.starts_with(sign)) return false;
    text_.remove_prefix(sign.size());
    return true;
  }

  Number fail() {
    wrong_ = true;
    text_ = {};
    return std::nullopt;
  }

  /// Reads "a ? b : c", which binds least.
  Number choice(int depth) {
    const Number condition = binary(1, depth);
    if (!take("?")) return condition;
    if (depth > kMostParentheses) return fail();
    const Number yes = choice(depth + 1);
    if (!take(":")) return fail();
    const Number no = choice(depth + 1);
    if (!condition) return std::nullopt;
    return *condition != 0 ? yes : no;
  }

  Number binary(int least, int depth) {
    Number left = operand(depth);
    for (;;) {
      skip();
      const auto* const found = std::ranges::find_if(
          kOperators, [&](const Operator& one) { return text_.starts_with(one.sign); });
      if (found == std::end(kOperators) || (found->rank > 0 && found->rank < least)) {
        return left;
      }
      text_.remove_prefix(found->sign.size());
      if (found->rank == 0 || text_.starts_with("=")) return fail();
      const Number right = binary(found->rank + 1, depth);
      left = left && right ? joined(found->sign, *left, *right) : std::nullopt;
    }
  }

  Number operand(int depth) {
    if (depth > kMostParentheses) return fail();
    if (text_.starts_with("++") || text_.starts_with("--")) return fail();
    if (take("(")) {
      const Number inside = choice(depth + 1);
      return take(")") ? inside : fail();
    }
    if (take("!")) {
      const Number value = operand(depth + 1);
      return value ? Number(*value == 0 ? 1 : 0) : std::nullopt;
    }
    if (take("-")) {
      const Number value = operand(depth + 1);
      return value ? joined("-", 0, *value) : std::nullopt;
    }
    if (take("+")) return operand(depth + 1);
    const auto size = static_cast<size_t>(
        std::ranges::find_if_not(text_, is_word_character) - text_.begin());
    if (size == 0) return fail();
    const std::string_view word = text_.substr(0, size);
    text_.remove_prefix(size);
    if (!is_digit(word[0])) return number_(std::string(word));
    // A leading 0 begins an octal number, and "0x" a hexadecimal one; neither is read.
    if (word.size() > 1 && word[0] == '0') return fail();
    return whole_number<int64_t>(word);
  }

  std::string_view text_;
  const ShellNumber& number_;
  bool wrong_ = false;
};

/// Returns the value of the text between "$((" and "))". `number` returns the values of
/// variables. Returns nothing for an unknown operand, a division by 0, a number of more
/// than 64 bits, and for operators that set variables or shift bits.
Number shell_arithmetic(std::string_view text, const ShellNumber& number) {
  return ArithmeticReader(text, number).read();
}

constexpr int kMostTexts = 16;
constexpr size_t kMostCut = 4096;

bool begins_with_command(std::string_view text) {
  return text.starts_with("$(") || text.starts_with('`');
}

ShellWord unknown_piece(std::string_view piece) { return {std::string(piece), true}; }

/// Returns the index behind the bracket that closes the one at `at`, or npos.
size_t closing(std::string_view text, size_t at, bool quotes) {
  const char open = text[at];
  const char close = open == '{' ? '}' : ')';
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\\') {
      ++at;
    } else if (quotes && (c == '\'' || c == '"')) {
      at = text.find(c, at + 1);
      if (at == std::string_view::npos) return at;
    } else if (c == open) {
      ++depth;
    } else if (c == close && --depth == 0) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

/// Returns the words of a variable's value. A word that is one unknown command, such as
/// "$(date)", becomes the variable's name.
ShellWords named(const std::string& name, const ShellWords& words) {
  ShellWords out = words;
  for (ShellWord& word : out) {
    // The name of a variable tells a person more than a command.
    if (!word.variable || !begins_with_command(word.text) ||
        shell_piece_end(word.text, 0) != word.text.size()) {
      continue;
    }
    if (word.choices.empty()) word.choices = fmt::format("{} is {}", name, word.text);
    word.text = "$" + name;
  }
  return out;
}

/// Returns the text without the part at its front or end that a pattern matches.
std::string cut(const std::string& text, const std::string& pattern, bool front,
                bool longest) {
  for (size_t i = 0; i <= text.size(); ++i) {
    const size_t size = longest ? text.size() - i : i;
    const std::string_view part = front
                                      ? std::string_view(text).substr(0, size)
                                      : std::string_view(text).substr(text.size() - size);
    if (!glob_match(pattern, part)) continue;
    return front ? text.substr(size) : text.substr(0, text.size() - size);
  }
  return text;
}

}  // namespace

size_t shell_piece_end(std::string_view text, size_t from) {
  size_t end = from + 1;
  if (text[from] == '`') {
    end = text.find('`', end);
    return end == std::string_view::npos ? end : end + 1;
  }
  const char next = end < text.size() ? text[end] : '\0';
  if (next == '{') return closing(text, end, false);
  if (next == '(') {
    const size_t behind = closing(text, end, true);
    return behind == std::string_view::npos ? closing(text, end, false) : behind;
  }
  if (is_digit(next) || (next != '\0' && std::string_view("@*#?!$-").find(next) !=
                                             std::string_view::npos)) {
    return end + 1;
  }
  while (end < text.size() && is_word_character(text[end])) ++end;
  return end;
}

void ShellExpansion::shift_arguments() {
  if (!arguments_.empty() && !arguments_.back().empty()) {
    arguments_.back().erase(arguments_.back().begin());
  }
}

ShellValue ShellExpansion::value_of(const std::string& name) {
  const bool number = is_digit(name[0]);
  const bool all = name == "@" || name == "*";
  if (!number && !all && name != "#") {
    if (shell_name_size(name) == name.size()) return variables_.get(name);
    return {{unknown_word(name)}};
  }
  if (!arguments_.empty() && name != "0") {
    const ShellWords& words = arguments_.back();
    if (all) return {words};
    if (name == "#") return {{{std::to_string(words.size())}}};
    const auto place = whole_number<size_t>(name);
    if (!place || *place > words.size()) return {{}, false};
    return {{words[*place - 1]}};
  }
  if (!settings_.whole || name == "0") return {{unknown_word(name)}};
  ShellWord none;
  none.unset.insert("$" + name);
  if (name == "#") none.text = "0";
  return {{none}, name == "#"};
}

ShellWords ShellExpansion::piece(std::string_view piece, bool whole) {
  ShellWords words;
  if (piece.starts_with("$((") && piece.ends_with("))")) {
    words = {arithmetic(piece.substr(3, piece.size() - 5), piece)};
  } else if (begins_with_command(piece)) {
    // The usual words for the script's own directory.
    const auto has = [&](std::string_view part) {
      return piece.find(part) != std::string_view::npos;
    };
    const bool own =
        has("dirname") && has("pwd") && !has("..") && (has("BASH_SOURCE") || has("$0"));
    words = {own && !settings_.directory.empty() ? ShellWord{settings_.directory}
                                                 : unknown_piece(piece)};
  } else if (piece.starts_with("${")) {
    return parameter(piece.substr(2, piece.size() - 3), piece, whole);
  } else {
    return parameter(piece.substr(1), piece, whole);
  }
  return words;
}

ShellWords ShellExpansion::parameter(std::string_view body, std::string_view piece,
                                     bool whole) {
  if (body.starts_with('#') && body.size() > 1) {
    std::string_view rest = body.substr(1);
    const size_t size = shell_name_size(rest);
    const ShellValue value =
        size > 0 ? variables_.get(std::string(rest.substr(0, size))) : ShellValue{};
    const bool elements = rest.substr(size) == "[@]" || rest.substr(size) == "[*]";
    const bool known = std::ranges::none_of(value.words, &ShellWord::variable);
    if (size == 0 || !known || (!elements && size < rest.size())) {
      return {unknown_piece(piece)};
    }
    const size_t one = value.words.empty() ? 0 : value.words[0].text.size();
    return {{std::to_string(elements ? value.words.size() : one)}};
  }
  size_t size = shell_name_size(body);
  if (size == 0) {
    size = std::ranges::find_if_not(body, is_digit) - body.begin();
    if (size == 0) size = std::min<size_t>(body.size(), 1);
  }
  if (size == 0) return {unknown_piece(piece)};
  const std::string name(body.substr(0, size));
  std::string_view form = body.substr(size);
  ShellValue value = value_of(name);
  bool all = name == "@" || name == "*";
  if (form.starts_with("[@]") || form.starts_with("[*]")) {
    all = true;
    form.remove_prefix(3);
  } else if (form.starts_with('[')) {
    const size_t end = form.find(']');
    const auto place =
        whole_number<size_t>(form.substr(1, std::min(end, form.size()) - 1));
    const bool known = std::ranges::none_of(value.words, &ShellWord::variable);
    if (end == std::string_view::npos || !place || !known) return {unknown_piece(piece)};
    value = *place < value.words.size() ? ShellValue{{value.words[*place]}}
                                        : ShellValue{{}, false};
    form.remove_prefix(end + 1);
  }
  if (!all && value.words.size() > 1) value.words.resize(1);
  if (!form.empty()) return with_form(name, value, form, piece, whole);
  // The elements of an array have no names of their own, so that they stay as they are.
  ShellWords words = all ? value.words : named(name, value.words);
  const bool own = words.size() == 1 && words[0].text == "$" + name;
  if (own && words[0].variable) words[0].text = piece;
  return words;
}

ShellWords ShellExpansion::with_form(const std::string& name, const ShellValue& value,
                                     std::string_view form, std::string_view piece,
                                     bool whole) {
  const std::string_view sign = form.substr(form.starts_with(':') ? 1 : 0, 1);
  if (sign == "-" || sign == "=" || sign == "+" || sign == "?") {
    return otherwise(name, value, form, piece, whole);
  }
  const bool cuts = form.starts_with('#') || form.starts_with('%');
  if (!cuts || value.words.size() != 1 || value.words[0].variable ||
      value.words[0].text.size() > kMostCut) {
    return {unknown_piece(piece)};
  }
  const bool longest = form.size() > 1 && form[0] == form[1];
  const ShellWord pattern = text(form.substr(longest ? 2 : 1));
  if (pattern.variable || pattern.text.find_first_of("[\\") != std::string::npos) {
    return {unknown_piece(piece)};
  }
  ShellWord word = value.words[0];
  variables_.spend(word.text.size() * word.text.size() / 4);
  word.text = cut(word.text, pattern.text, form[0] == '#', longest);
  return {word};
}

ShellWords ShellExpansion::otherwise(const std::string& name, const ShellValue& value,
                                     std::string_view form, std::string_view piece,
                                     bool whole) {
  const bool colon = form.starts_with(':');
  const char sign = form[colon ? 1 : 0];
  const bool nothing = std::ranges::all_of(value.words, [](const ShellWord& word) {
    return word.text.empty() && !word.variable;
  });
  const bool unset = !value.set || (colon && nothing);
  const bool unknown = value.set && !value.words.empty() && value.words[0].variable &&
                       value.words[0].text.find_first_of("$`") == 0;
  const bool takes_word = sign == '+' ? !unset : unset;
  ShellWord word = takes_word || unknown ? text(form.substr(colon ? 2 : 1)) : ShellWord{};
  for (const ShellWord& one : value.words)
    add_to_word(word, {.text = "", .unset = one.unset});
  if (unknown) {
    ShellWord raw = unknown_piece(piece);
    add_to_word(raw, {.text = "", .unset = word.unset, .choices = word.choices});
    if (sign != '+' && raw.choices.empty()) {
      raw.choices = fmt::format("{} where {} is not set", word.text, name);
    }
    if (sign == '=') variables_.set(name, {{raw}});
    return {raw};
  }
  if (sign == '+' ? unset : !unset) {
    if (sign != '+') return named(name, value.words);
    word.text.clear();
    return {word};
  }
  if (sign == '?') return {unknown_piece(piece)};
  if (sign == '=') variables_.set(name, {{word}});
  return whole || word.text.empty() ? ShellWords{word} : shell_fields(word);
}

ShellWord ShellExpansion::text(std::string_view text) {
  ShellWord word;
  if (++depth_ > kMostTexts) {
    --depth_;
    return unknown_piece(text);
  }
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '$' || c == '`') {
      const size_t end = std::min(shell_piece_end(text, at), text.size());
      const std::string_view part = text.substr(at, end - at);
      at = end;
      if (part == "$") {
        word.text += part;
        continue;
      }
      bool first = true;
      for (const ShellWord& one : piece(part, true)) {
        if (!first) word.text += ' ';
        first = false;
        add_to_word(word, one);
      }
    } else if (c == '\'') {
      const size_t end = std::min(text.find('\'', at + 1), text.size());
      word.text += text.substr(at + 1, end - at - 1);
      at = std::min(end + 1, text.size());
    } else if (c == '"') {
      ++at;
    } else {
      if (c == '\\' && at + 1 < text.size()) ++at;
      if (c == '~' && word.text.empty()) word.variable = true;
      word.text += text[at++];
    }
  }
  --depth_;
  variables_.spend(word.text.size());
  return word;
}

ShellWord ShellExpansion::arithmetic(std::string_view text, std::string_view written) {
  ShellWord word = this->text(text);
  std::optional<int64_t> result;
  if (!word.variable) {
    const std::string expression = std::exchange(word.text, "");
    result = shell_arithmetic(expression, [&](const std::string& name) {
      const ShellValue value = variables_.get(name);
      if (value.words.empty()) return std::optional<int64_t>(0);
      const ShellWord& one = value.words[0];
      add_to_word(word, {.text = "", .unset = one.unset, .choices = one.choices});
      if (one.variable) return std::optional<int64_t>();
      const std::string_view digits = trimmed(one.text);
      return digits.empty() ? std::optional<int64_t>(0) : whole_number<int64_t>(digits);
    });
  }
  word.value = 0;
  word.variable = !result;
  word.text = result ? std::to_string(*result) : std::string(written);
  if (result) word.choices.clear();
  return word;
}

}  // namespace longhaul::translate
