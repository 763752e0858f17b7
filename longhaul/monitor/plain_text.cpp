#include "longhaul/monitor/plain_text.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "longhaul/base/text.h"

namespace longhaul::monitor {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Control characters, and characters that change the direction, join others or take no
// place. A text without such characters shows all that it holds, in its order.
constexpr auto kUnshown = std::to_array<Range>({{0x00, 0x1F},
                                                {0x7F, 0x9F},
                                                {0xAD, 0xAD},
                                                {0x061C, 0x061C},
                                                {0x180E, 0x180E},
                                                {0x200B, 0x200F},
                                                {0x2028, 0x202E},
                                                {0x2060, 0x206F},
                                                {0xFEFF, 0xFEFF},
                                                {0xFFF0, 0xFFFB},
                                                {0xFFFE, 0xFFFF},
                                                {0xE0000, 0xE0FFF}});
constexpr auto kWide = std::to_array<Range>({{0x1100, 0x115F},
                                             {0x2E80, 0xA4CF},
                                             {0xAC00, 0xD7A3},
                                             {0xF900, 0xFAFF},
                                             {0xFE30, 0xFE6F},
                                             {0xFF00, 0xFF60},
                                             {0xFFE0, 0xFFE6},
                                             {0x1F300, 0x1FAFF},
                                             {0x20000, 0x3FFFD}});
constexpr auto kCombining = std::to_array<Range>({{0x0300, 0x036F},
                                                  {0x1AB0, 0x1AFF},
                                                  {0x1DC0, 0x1DFF},
                                                  {0x20D0, 0x20FF},
                                                  {0xFE00, 0xFE0F},
                                                  {0xFE20, 0xFE2F}});

template <size_t N>
bool within(const std::array<Range, N>& ranges, uint32_t point) {
  return std::ranges::any_of(
      ranges, [&](const Range& r) { return point >= r.first && point <= r.last; });
}

/// Returns the bytes of the character that begins with this byte of valid UTF-8.
size_t length_of(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

uint32_t point_of(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  uint32_t point = byte(0) & (0xFFU >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) point = point << 6 | (byte(i) & 0x3FU);
  return point;
}

size_t columns_of(std::string_view character) {
  if (character.size() == 1) return 1;
  const uint32_t point = point_of(character);
  if (within(kCombining, point)) return 0;
  return within(kWide, point) ? 2 : 1;
}

void append_valid(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size();) {
    const std::string_view character = text.substr(i, length_of(text[i]));
    const char c = character.front();
    if (c == '\n' || c == '\t' || c == '\r') {
      out += ' ';
    } else if (within(kUnshown, point_of(character))) {
      out += '?';
    } else {
      out += character;
    }
    i += character.size();
  }
}

}  // namespace

std::string plain_text(std::string_view text, size_t longest) {
  const bool cut = text.size() > longest;
  text = text.substr(0, longest);
  std::string out;
  out.reserve(text.size() + 3);
  while (!text.empty()) {
    const size_t bad = find_invalid_utf8(text).value_or(text.size());
    append_valid(text.substr(0, bad), out);
    text.remove_prefix(bad);
    if (text.empty()) break;
    // A character that the limit has cut in two is left out, without a '?' for damage.
    if (!(cut && text.size() < 4)) out += '?';
    text.remove_prefix(1);
  }
  return cut ? out + "..." : out;
}

size_t text_columns(std::string_view utf8) {
  size_t columns = 0;
  for (size_t i = 0; i < utf8.size();) {
    const std::string_view character = utf8.substr(i, length_of(utf8[i]));
    columns += columns_of(character);
    i += character.size();
  }
  return columns;
}

std::string cut_to_columns(std::string_view utf8, size_t columns) {
  if (text_columns(utf8) <= columns) return std::string(utf8);
  if (columns == 0) return {};
  size_t taken = 0;
  size_t end = 0;
  while (end < utf8.size()) {
    const std::string_view character = utf8.substr(end, length_of(utf8[end]));
    if (taken + columns_of(character) > columns - 1) break;
    taken += columns_of(character);
    end += character.size();
  }
  return std::string(utf8.substr(0, end)) + "…";
}

std::string fit_to_columns(std::string_view utf8, size_t columns, bool right) {
  std::string out = cut_to_columns(utf8, columns);
  const std::string fill(columns - std::min(columns, text_columns(out)), ' ');
  return right ? fill + out : out + fill;
}

}  // namespace longhaul::monitor
