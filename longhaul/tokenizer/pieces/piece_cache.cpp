#include "longhaul/tokenizer/pieces/piece_cache.h"

#include <algorithm>

namespace longhaul::tokenizer {

void PieceCache::add(const PieceKey& key, std::string_view piece,
                     std::span<const uint32_t> ids) {
  if (ids.empty()) return;
  if (text_.size() > kMostText || ids_.size() * sizeof(uint32_t) > kMostText) forget();
  Entry entry{key, {}, static_cast<uint32_t>(ids.size())};
  if (key.is_long() || ids.size() > kInline) {
    entry.count += kElsewhere;
    entry.ids[0] = static_cast<uint32_t>(ids_.size());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  } else {
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }
  if (key.is_long()) {
    entry.ids[1] = static_cast<uint32_t>(text_.size());
    text_.append(piece);
  }
  // The table doubles when half of its entries are used, so that most pieces find a free
  // entry in the line that their hash names.
  if (used_ > lines_.size() && lines_.size() < kMostLines) grow();
  place(entry);
}

/// Places an entry in its line or the neighbouring line. If both are full, it replaces
/// another entry. The first entry of a line is replaced in one of eight cases only, since
/// frequent pieces come first.
void PieceCache::place(const Entry& entry) {
  const size_t line = entry.key.hash() >> shift_;
  for (const size_t i : {line, line ^ 1}) {
    for (Entry& target : lines_[i].entries) {
      if (target.count != 0) continue;
      target = entry;
      ++used_;
      return;
    }
  }
  ++evicted_;
  lines_[line].entries[evicted_ % 8 == 0 ? 0 : 1] = entry;
}

void PieceCache::resize(size_t lines) {
  lines_ = Lines(lines);
  shift_ = 64 - std::countr_zero(lines);
}

void PieceCache::grow() {
  const Lines old = std::move(lines_);
  resize(std::min(old.size() * 4, kMostLines));
  used_ = 0;
  for (const Line& line : old) {
    for (const Entry& entry : line.entries) {
      if (entry.count != 0) place(entry);
    }
  }
}

void PieceCache::forget() {
  std::fill(lines_.begin(), lines_.end(), Line{});
  text_.clear();
  ids_.clear();
  used_ = 0;
}

}  // namespace longhaul::tokenizer
