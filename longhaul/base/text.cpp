#include "longhaul/base/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <sstream>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

/// Counts the letters to insert, to leave out, to replace, or to swap with the next one.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);  // the row above the last one
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last.back();
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates) {
  constexpr size_t kMostEdits = 2;
  std::optional<std::string> best;
  size_t best_distance = name.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    const bool begins = name.starts_with(candidate) || candidate.starts_with(name);
    if (distance < best_distance && (distance <= kMostEdits || begins)) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string human_bytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (std::abs(bytes) >= 1000.0 && unit < 5) {
    bytes /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes)
                   : fmt::format("{:.1f} {}", bytes, units[unit]);
}

uint64_t parse_byte_size(std::string_view text) {
  // A user who types fewer bytes than this without a unit has most likely forgotten the
  // unit.
  constexpr double kSmallestBareSize = 1e6;
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{{
      {"", 1},
      {"B", 1},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"KIB", 1024.0},
      {"MIB", 1048576.0},
      {"GIB", 1073741824.0},
      {"TIB", 1099511627776.0},
  }};
  double number = 0.0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  std::string unit(parsed.ptr, end);
  unit.erase(0, unit.find_first_not_of(' '));
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto found = std::find_if(kUnits.begin(), kUnits.end(),
                                  [&](const auto& known) { return known.first == unit; });
  const double bytes = found == kUnits.end() ? 0.0 : std::floor(number * found->second);
  const bool half = unit.size() == 1 && std::string_view("KMGT").find(unit[0]) < 4;
  if (parsed.ec == std::errc() && half) {
    const std::string_view written =
        text.substr(0, text.find_first_not_of("0123456789."));
    fail_input(
        "argument",
        "'{}' may be {}{}B (powers of 1000) or {}{}iB (powers of 1024); write which",
        text, written, unit, written, unit);
  }
  if (parsed.ec != std::errc() || !(bytes >= 1) || bytes > 9e18) {
    fail_input("argument", "'{}' is no size; write 5GB, 500MB or 2GiB", text);
  }
  if (unit.empty() && bytes < kSmallestBareSize) {
    fail_input("argument",
               "'{}' has no unit, and {} bytes are hardly meant; write {}GB, {}MB or {}B",
               text, text, text, text, text);
  }
  return static_cast<uint64_t>(bytes);
}

std::string human_duration(double seconds) {
  // NaN and negative numbers become 0, and numbers too large for an integer become 1e15.
  const double bounded = seconds > 0.0 ? std::min(seconds, 1e15) : 0.0;
  const auto total = static_cast<int64_t>(std::llround(bounded));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{}m {:02}s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{}h {:02}m", total / 3600, total / 60 % 60);
  return fmt::format("{}d {:02}h", total / 86400, total / 3600 % 24);
}

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  if (number < 0) digits.erase(0, 1);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return number < 0 ? "-" + digits : digits;
}

std::string counted(int64_t number, std::string_view singular, std::string_view plural) {
  std::string text = grouped(number) + " ";
  if (number == 1) return text.append(singular);
  return plural.empty() ? text.append(singular).append("s") : text.append(plural);
}

std::string listed(std::span<const std::string> names, size_t most) {
  const size_t shown = std::min(names.size(), most);
  std::string text = fmt::format("{}", fmt::join(names.first(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

size_t find_wildcard(std::string_view text) { return text.find_first_of("*?["); }

bool glob_match(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]) &&
        pattern[p] != '*') {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string plain_characters(std::string name) {
  for (char& c : name) {
    if (!is_word_character(c) && c != '.' && c != '-') c = '_';
  }
  return name;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto tail = [&](size_t i, unsigned low, unsigned high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  size_t i = 0;
  while (i < text.size()) {
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
    } else if (lead >= 0xC2 && lead <= 0xDF) {
      if (!tail(i + 1, 0x80, 0xBF)) return i;
      i += 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;
      const unsigned high = lead == 0xED ? 0x9F : 0xBF;
      if (!tail(i + 1, low, high) || !tail(i + 2, 0x80, 0xBF)) return i;
      i += 3;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
      const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;
      if (!tail(i + 1, low, high) || !tail(i + 2, 0x80, 0xBF) ||
          !tail(i + 3, 0x80, 0xBF)) {
        return i;
      }
      i += 4;
    } else {
      return i;
    }
  }
  return std::nullopt;
}

std::vector<std::string> split_words(std::string_view list) {
  std::istringstream text{std::string(list)};
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

bool has_word(std::string_view list, std::string_view word) {
  return std::ranges::count(split_words(list), word) > 0;
}

}  // namespace longhaul
