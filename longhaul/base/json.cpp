#include "longhaul/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

/// A number that the parser cannot hold, and which of the document's numbers it is.
struct OddNumber {
  size_t number;
  size_t at;
  std::string_view text;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether a character may be part of a word or a number.
bool goes_on(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '+' || c == '.';
}

size_t skip_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

/// Whether a word is a number by JSON's grammar. Of other words the parser says what is
/// wrong.
bool is_number(std::string_view word) {
  size_t at = word.starts_with('-') ? 1 : 0;
  const size_t first = at;
  at = skip_digits(word, at);
  if (at == first || (word[first] == '0' && at > first + 1)) return false;
  if (at < word.size() && word[at] == '.') {
    const size_t fraction = at + 1;
    at = skip_digits(word, fraction);
    if (at == fraction) return false;
  }
  if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
    ++at;
    if (at < word.size() && (word[at] == '+' || word[at] == '-')) ++at;
    const size_t exponent = at;
    at = skip_digits(word, exponent);
    if (at == exponent) return false;
  }
  return at == word.size();
}

/// Whether a whole number needs more than 64 bits.
bool is_too_long(std::string_view integer) {
  constexpr size_t kAlwaysFit = 18;
  if (integer.size() <= kAlwaysFit || !is_number(integer)) return false;
  const char* const end = integer.data() + integer.size();
  int64_t with_sign = 0;
  uint64_t without = 0;
  const auto read = integer.front() == '-'
                        ? std::from_chars(integer.data(), end, with_sign)
                        : std::from_chars(integer.data(), end, without);
  return read.ec == std::errc::result_out_of_range;
}

/// Whether a number is larger than any double.
bool is_too_large(std::string_view number) {
  constexpr size_t kMostDigits = 300;    // before a point, of what always fits
  constexpr size_t kExponentDigits = 3;  // of the smallest exponent that may not fit
  const size_t exponent = number.find_first_of("eE");
  const bool may_be = exponent == std::string_view::npos
                          ? number.size() > kMostDigits
                          : number.size() > exponent + kExponentDigits;
  return may_be && is_number(number) &&
         std::isinf(std::strtod(std::string(number).c_str(), nullptr));
}

bool is_odd(std::string_view word) {
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return true;
  const bool whole = word.find_first_of(".eE") == std::string_view::npos;
  return whole ? is_too_long(word) : is_too_large(word);
}

/// The odd numbers of a document, in their order. What is no JSON is left to the parser.
std::vector<OddNumber> find_odd_numbers(std::string_view text) {
  std::vector<OddNumber> odd;
  size_t number = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
      continue;
    }
    if (!goes_on(text[at])) continue;
    size_t end = at + 1;
    while (end < text.size() && goes_on(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    at = end - 1;
    const bool plain = is_digit(word.front()) || word.front() == '-';
    if (!plain && word != "NaN" && word != "Infinity") continue;
    if (is_odd(word)) odd.push_back({number, end - word.size(), word});
    ++number;
  }
  return odd;
}

template <typename Value>
Value parse(std::string_view given, std::string_view what, int max_depth) {
  const std::vector<OddNumber> odd = find_odd_numbers(given);
  std::string replaced;
  std::string_view text = given;
  if (!odd.empty()) {
    // The text keeps its length, so that messages name the right byte.
    replaced = given;
    for (const OddNumber& one : odd) {
      replaced.replace(one.at, one.text.size(),
                       "0" + std::string(one.text.size() - 1, ' '));
    }
    text = replaced;
  }
  size_t number = 0;
  auto next_odd = odd.begin();
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, Value& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > max_depth) {
      throw InputError("json", fmt::format("{}: nested deeper than {} levels; refused",
                                           what, max_depth));
    }
    if (event == Event::value && parsed.is_number()) {
      if (next_odd != odd.end() && next_odd->number == number) {
        parsed = Value::binary({next_odd->text.begin(), next_odd->text.end()});
        ++next_odd;
      }
      ++number;
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key &&
        !keys.back().insert(parsed.template get<std::string>()).second) {
      throw InputError("json",
                       fmt::format("{}: the key \"{}\" stands twice in one object", what,
                                   parsed.template get<std::string>()));
    }
    return true;
  };
  try {
    return Value::parse(text, watch);
  } catch (const nlohmann::json::parse_error& error) {
    throw InputError("json", fmt::format("{}: not valid JSON at byte {}: {}", what,
                                         error.byte, words_of(error)));
  } catch (const nlohmann::json::exception& error) {  // a number out of range
    throw InputError("json",
                     fmt::format("{}: not valid JSON: {}", what, words_of(error)));
  }
}

template <typename Value>
std::string text_of_scalar(const Value& value) {
  return value.dump(-1, ' ', false, Value::error_handler_t::replace);
}

/// Writes a value as dump() does; of a binary value it writes the number's own text.
template <typename Value>
void write(const Value& value, int indent, int level, std::string& out) {
  if (value.is_binary()) {
    out.append(value.get_binary().begin(), value.get_binary().end());
    return;
  }
  if (!value.is_structured() || value.empty()) {
    out += text_of_scalar(value);
    return;
  }
  const auto line = [&](int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
  };
  const bool object = value.is_object();
  out += object ? '{' : '[';
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (item != value.begin()) out += ',';
    line(level + 1);
    if (object) out += text_of_scalar(Value(item.key())) + (indent < 0 ? ":" : ": ");
    write(*item, indent, level + 1, out);
  }
  line(level);
  out += object ? '}' : ']';
}

}  // namespace

// "[json.exception.type_error.302] type must be string, but is number".
std::string words_of(const Json::exception& problem) {
  const std::string_view words = problem.what();
  const size_t end = words.find("] ");
  const bool named = words.starts_with("[json.exception.") && end != words.npos;
  return std::string(named ? words.substr(end + 2) : words);
}

std::string json_text(const Json& value, int indent) {
  std::string text;
  write(value, indent, 0, text);
  return text;
}

std::string json_text(const OrderedJson& value, int indent) {
  std::string text;
  write(value, indent, 0, text);
  return text;
}

Json parse_json(std::string_view text, std::string_view what, int max_depth) {
  return parse<Json>(text, what, max_depth);
}

OrderedJson parse_ordered_json(std::string_view text, std::string_view what,
                               int max_depth) {
  return parse<OrderedJson>(text, what, max_depth);
}

Json read_json(const fs::path& path, uint64_t limit) {
  return parse_json(read_text(path, limit), path.string());
}

}  // namespace longhaul
