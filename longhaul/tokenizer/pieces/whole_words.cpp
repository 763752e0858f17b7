#include "longhaul/tokenizer/pieces/whole_words.h"

#include "longhaul/base/error.h"

namespace longhaul::tokenizer {

void WholeWords::add(std::string_view text, uint32_t id) {
  const PieceKey key = PieceKey::of(text);
  size_t slot = slot_of(key);
  while (entries_[slot].used) slot = (slot + 1) & (entries_.size() - 1);
  LH_CHECK(text_.size() + text.size() < INT32_MAX, "tokenizer",
           "a vocabulary of {} bytes", text_.size() + text.size());
  Entry& entry = entries_[slot];
  entry.key = key;
  entry.id = id;
  entry.text = static_cast<uint32_t>(text_.size()) & 0x7FFFFFFF;
  entry.used = 1;
  if (key.is_long()) text_.append(text);
}

}  // namespace longhaul::tokenizer
