#include "longhaul/data/tokenizer/piece_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace longhaul::data {

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
  // Half full, most pieces lie in their own line.
  if (used_ > line_count_ && line_count_ < kMostLines) grow();
  place(entry);
}

/// In its line or the one beside it, else in the place of another piece. Mostly who came
/// first stays, since the frequent ones come first; but not for ever.
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

void PieceCache::allocate(size_t lines) {
  constexpr size_t kHugePage = size_t{1} << 21;
  const size_t bytes = lines * sizeof(Line);
  lines_.reset(static_cast<Line*>(std::aligned_alloc(std::min(bytes, kHugePage), bytes)));
  if (!lines_) throw std::bad_alloc();
  // Lines are taken at random: with small pages the address of each would be looked up.
  if (bytes >= kHugePage) ::madvise(lines_.get(), bytes, MADV_HUGEPAGE);
  std::uninitialized_value_construct_n(lines_.get(), lines);
  line_count_ = lines;
  shift_ = 64 - std::countr_zero(lines);
}

void PieceCache::grow() {
  const auto old = std::move(lines_);
  const size_t count = line_count_;
  allocate(std::min(count * 4, kMostLines));
  used_ = 0;
  for (size_t i = 0; i < count; ++i) {
    for (const Entry& entry : old[i].entries) {
      if (entry.count != 0) place(entry);
    }
  }
}

void PieceCache::forget() {
  std::fill_n(lines_.get(), line_count_, Line{});
  text_.clear();
  ids_.clear();
  used_ = 0;
}

}  // namespace longhaul::data
