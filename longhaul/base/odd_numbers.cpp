#include "longhaul/base/odd_numbers.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "longhaul/base/text.h"

namespace longhaul {
namespace {

/// Returns whether a character may be part of a word or a number.
bool goes_on(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '+' || c == '.';
}

size_t skip_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

/// Returns whether a word is a number by JSON's grammar. The parser says what is wrong
/// with other words.
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

/// Returns whether a whole number needs more than 64 bits.
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

/// Returns whether a number is larger than any double.
bool is_too_large(std::string_view number) {
  // A double holds every number with at most these many digits before its exponent and in
  // it.
  constexpr size_t kMostDigits = 200;
  constexpr size_t kExponentDigits = 2;
  const size_t exponent = number.find_first_of("eE");
  const bool may_be =
      number.size() > kMostDigits || (exponent != std::string_view::npos &&
                                      number.size() > exponent + 1 + kExponentDigits);
  return may_be && is_number(number) &&
         std::isinf(std::strtod(std::string(number).c_str(), nullptr));
}

bool is_odd(std::string_view word) {
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return true;
  const bool whole = word.find_first_of(".eE") == std::string_view::npos;
  return whole ? is_too_long(word) : is_too_large(word);
}

/// Returns the numbers of a document that no number type here can hold, in their order.
/// Text that is no JSON is left to the parser.
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

}  // namespace

PlainJson::PlainJson(std::string_view given)
    : given_(given), odd_(find_odd_numbers(given)) {
  if (odd_.empty()) return;
  replaced_ = given;
  for (const OddNumber& one : odd_) {
    replaced_.replace(one.at, one.text.size(),
                      "0" + std::string(one.text.size() - 1, ' '));
  }
}

}  // namespace longhaul
