#include "longhaul/config/count.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::config {
namespace {

/// A decimal number: digits * 10^power.
struct Decimal {
  int64_t digits = 0;
  int64_t power = 0;
  bool negative = false;
};

constexpr int64_t kMostPower = 18;

struct Multiple {
  std::string_view name;
  int64_t power;   ///< of ten
  int64_t binary;  ///< a factor
};

constexpr std::array<Multiple, 9> kMultiples{{{"", 0, 1},
                                              {"k", 3, 1},
                                              {"K", 3, 1},
                                              {"M", 6, 1},
                                              {"B", 9, 1},
                                              {"T", 12, 1},
                                              {"Ki", 0, 1 << 10},
                                              {"Mi", 0, 1 << 20},
                                              {"Gi", 0, 1 << 30}}};

/// Returns whether commas separate the digits into groups of three: "1,000".
bool is_grouped(std::string_view text) {
  const size_t first = text.find(',');
  if (first == std::string_view::npos || first == 0 || first > 3) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool comma = i >= first && (i - first) % 4 == 0;
    if (comma ? text[i] != ',' : !is_digit(text[i])) return false;
  }
  return (text.size() - first) % 4 == 0;
}

/// Removes digits, which may have _ between them, from the front of `text`, and appends
/// them to `digits`.
void take_digits(std::string_view& text, std::string& digits) {
  while (!text.empty()) {
    const bool between = text[0] == '_' && text.size() > 1 && is_digit(text[1]) &&
                         !digits.empty() && is_digit(digits.back());
    if (!between && !is_digit(text[0])) return;
    if (is_digit(text[0])) digits += text[0];
    text.remove_prefix(1);
  }
}

/// Removes a number from the front of `text`; what follows it stays.
std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal number;
  std::string_view rest = text;
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) {
    number.negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  std::string digits;
  take_digits(rest, digits);
  const size_t whole = digits.size();
  if (!rest.empty() && rest[0] == '.') {
    rest.remove_prefix(1);
    take_digits(rest, digits);
  }
  if (whole == 0) return std::nullopt;
  std::string fraction = digits.substr(whole);
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  number.power = -static_cast<int64_t>(fraction.size());
  const auto value = whole_number<int64_t>(digits.substr(0, whole) + fraction);
  if (!value) return std::nullopt;
  number.digits = *value;
  if (rest.size() > 1 && (rest[0] == 'e' || rest[0] == 'E')) {
    std::string_view behind = rest.substr(rest[1] == '+' ? 2 : 1);
    if (const auto power = take_number<int64_t>(behind)) {
      if (*power < -kMostPower || *power > kMostPower) return std::nullopt;
      number.power += *power;
      rest = behind;
    }
  }
  text = rest;
  return number;
}

/// Returns the number times a multiple, or nothing if that is not whole or does not fit.
std::optional<int64_t> times(const Decimal& number, const Multiple& multiple) {
  std::optional<int64_t> value = checked_product(number.digits, multiple.binary);
  for (int64_t power = number.power + multiple.power; value && power != 0;) {
    if (power > 0) {
      value = checked_product(*value, 10);
      --power;
    } else {
      if (*value % 10 != 0) return std::nullopt;
      value = *value / 10;
      ++power;
    }
  }
  return value && number.negative ? -*value : value;
}

std::string reading(const Decimal& number, std::string_view written,
                    const Multiple& multiple) {
  const auto value = times(number, multiple);
  const std::string name = fmt::format("{}{}", written, multiple.name);
  return value ? fmt::format("{} ({})", name, grouped(*value)) : name;
}

/// Returns what is wrong with a number whose ending has two readings, such as "16m", or
/// an empty text.
std::string two_readings(std::string_view text, std::string_view written,
                         std::string_view end, const Decimal& number, bool of_length) {
  const auto read = [&](const Multiple& multiple) {
    return reading(number, written, multiple);
  };
  std::string other;
  const Multiple* first = &kMultiples[3];
  if (of_length && (end == "k" || end == "K")) {
    const auto ten = times(number, kMultiples[1]);
    const auto two = times(number, kMultiples[6]);
    return !ten || !two ? ""
                        : fmt::format(
                              "'{}' may be {} or {} tokens; write {}, or {}Ki for the "
                              "second",
                              text, grouped(*ten), grouped(*two), *ten, written);
  }
  if (of_length && end == "M") {
    return fmt::format("'{}' may be {} or {} tokens; write the number", text,
                       read(kMultiples[3]), read(kMultiples[7]));
  }
  if (end == "m") {
    other = "minutes, or a thousandth";
  } else if (end == "b") {
    first = &kMultiples[4];
    other = "bytes";
  } else if (end == "g" || end == "G") {
    first = &kMultiples[4];
    other = read(kMultiples[8]);
  } else {
    return "";
  }
  return fmt::format("'{}' may be {} or {}; write which", text, read(*first), other);
}

}  // namespace

CountText read_count(std::string_view text, bool of_length) {
  std::string_view end = text;
  const auto number = take_decimal(end);
  if (!number) return {};
  const std::string_view written = text.substr(0, text.size() - end.size());
  while (!end.empty() && end[0] == ' ') end.remove_prefix(1);
  if (is_grouped(text)) {
    std::string plain(text);
    std::erase(plain, ',');
    return {{},
            fmt::format("'{}' may be {} or a number with a fraction; write it without "
                        "commas",
                        text, plain)};
  }
  if (std::string problem = two_readings(text, written, end, *number, of_length);
      !problem.empty()) {
    return {{}, std::move(problem)};
  }
  const auto found = std::ranges::find(kMultiples, end, &Multiple::name);
  if (found == kMultiples.end()) {
    const bool bytes = end.ends_with('B') || end.ends_with('b');
    if (bytes && end.size() <= 3) {
      return {{}, fmt::format("'{}' is a size in bytes; a count is wanted", text)};
    }
    return {};
  }
  const auto value = times(*number, *found);
  if (value) return {value, ""};
  return {{}, fmt::format("'{}' is no whole number of at most 64 bits", text)};
}

bool is_length(std::string_view name) {
  return name.ends_with("seq_len") || name.ends_with("seq-len");
}

}  // namespace longhaul::config
