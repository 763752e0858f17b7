#include "longhaul/tokenizer/unicode/char_map.h"

#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::tokenizer {
namespace {

// A unit of the double array, as darts-clone packs it.
bool has_leaf(uint32_t unit) { return (unit >> 8) & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

CharMap::CharMap(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() > sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  if (size < 4 || size % 4 != 0 || bytes.size() < sizeof(size) + size_t{size}) {
    fail_input("tokenizer",
               "a character map has {} bytes, but says that its trie has {}; the file is "
               "damaged",
               bytes.size(), size);
  }
  units_.resize(size / 4);
  std::memcpy(units_.data(), bytes.data() + sizeof(size), size);
  texts_ = bytes.substr(sizeof(size) + size);
  if (const auto bad = find_invalid_utf8(texts_)) {
    fail_input(
        "tokenizer",
        "the texts of a character map are not UTF-8 at byte {}; the file is damaged",
        *bad);
  }
}

std::string_view CharMap::text_at(uint32_t offset) const {
  if (offset > texts_.size()) {
    fail_input("tokenizer",
               "a character map points to byte {} of its texts, which have {} bytes; the "
               "file is damaged",
               offset, texts_.size());
  }
  // A text must not begin inside a character.
  const std::string_view text = std::string_view(texts_).substr(offset);
  if (!text.empty() && (static_cast<uint8_t>(text.front()) & 0xC0) == 0x80) {
    throw InputError(
        "tokenizer",
        "a character map points into the middle of a character; the file is damaged");
  }
  return text.substr(0, text.find('\0'));
}

template <typename Visit>
void CharMap::visit_prefixes(std::string_view text, Visit&& visit) const {
  if (units_.empty()) return;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size()) return;
    const uint32_t unit = units_[node];
    if (label_of(unit) != byte) return;
    node ^= offset_of(unit);
    if (node >= units_.size()) return;
    if (has_leaf(unit) && !visit(i + 1, value_of(units_[node]))) return;
  }
}

std::optional<std::string_view> CharMap::shortest_prefix(std::string_view text) const {
  std::optional<std::string_view> found;
  visit_prefixes(text, [&](size_t, uint32_t offset) {
    found = text_at(offset);
    return false;
  });
  return found;
}

std::optional<CharMap::Found> CharMap::longest_prefix(std::string_view text) const {
  std::optional<Found> found;
  visit_prefixes(text, [&](size_t bytes, uint32_t offset) {
    found = Found{bytes, text_at(offset)};
    return true;
  });
  return found;
}

}  // namespace longhaul::tokenizer
