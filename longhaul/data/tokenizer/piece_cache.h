#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/tokenizer/flat_maps.h"

namespace longhaul::data {

/// The ids of pieces seen before: direct-mapped, of bounded size. One thread's.
class PieceCache {
 public:
  /// Appends what is known of `piece`; false when nothing is.
  bool find(std::string_view piece, std::vector<uint32_t>& out) {
    if (piece.size() > kLongest) return false;
    if (entries_.empty()) entries_.resize(kEntries);
    hash_ = hash_bytes(piece.data(), piece.size());
    const Entry& entry = entries_[(hash_ >> 40) % kEntries];
    if (entry.hash != hash_ || entry.size != piece.size() ||
        std::memcmp(text_.data() + entry.text, piece.data(), piece.size()) != 0) {
      return false;
    }
    out.insert(out.end(), ids_.begin() + entry.ids,
               ids_.begin() + entry.ids + entry.count);
    return true;
  }
  /// Remembers the ids of the piece that `find` has just not found.
  void add(std::string_view piece, const uint32_t* ids, size_t count) {
    if (piece.size() > kLongest) return;
    if (text_.size() > kTextLimit) {
      std::fill(entries_.begin(), entries_.end(), Entry{});
      text_.clear();
      ids_.clear();
    }
    entries_[(hash_ >> 40) % kEntries] = {
        hash_, static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(piece.size()),
        static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(count)};
    text_.append(piece);
    ids_.insert(ids_.end(), ids, ids + count);
  }

 private:
  static constexpr size_t kEntries = 4096;
  static constexpr size_t kLongest = 64;  // bytes
  static constexpr size_t kTextLimit = size_t{1} << 22;
  struct Entry {
    uint64_t hash = 0;
    uint32_t text = 0;
    uint32_t size = 0;
    uint32_t ids = 0;
    uint32_t count = 0;
  };
  uint64_t hash_ = 0;
  std::vector<Entry> entries_;
  std::string text_;
  std::vector<uint32_t> ids_;
};

}  // namespace longhaul::data
