#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/tables/flat_maps.h"

namespace longhaul::tokenizer {

/// A piece in the form in which tables hold it. The key of a piece of up to kShort bytes
/// is the bytes and their number, so that equal keys mean equal pieces. The key of a
/// longer piece is a hash, and the texts must be compared as well.
struct PieceKey {
  static constexpr size_t kShort = 15;

  uint64_t low = 0;
  uint64_t high = 0;

  /// Returns the key of any piece.
  static PieceKey of(std::string_view piece) {
    if (piece.size() > kShort) {
      return {hash_bytes(piece.data(), piece.size()),
              kLong | (kLittle ? piece.size() : piece.size() << 8)};
    }
    char bytes[16] = {};
    std::memcpy(bytes, piece.data(), piece.size());
    return padded(bytes, piece.size());
  }
  /// Returns the key of at most kShort bytes at `data`, where 16 bytes can be read.
  static PieceKey padded(const char* data, size_t size) {
    PieceKey key;
    PieceKey mask;
    std::memcpy(&key, data, 16);
    std::memcpy(&mask, kMask.data() + 16 - size, 16);
    return {key.low & mask.low, (key.high & mask.high) | size_part(size)};
  }
  bool is_long() const { return (high & kLong) == kLong; }
  /// Compares without a branch.
  bool operator==(const PieceKey& other) const {
    return ((low ^ other.low) | (high ^ other.high)) == 0;
  }
  /// Returns a hash whose high bits are well mixed.
  uint64_t hash() const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{low ^ 0x9E3779B97F4A7C15u} * (high ^ 0xC2B2AE3D27D4EB4Fu);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

 private:
  static constexpr bool kLittle = std::endian::native == std::endian::little;
  static constexpr uint64_t size_part(uint64_t size) {
    return kLittle ? size << 56 : size;
  }
  static constexpr uint64_t kLong = kLittle ? uint64_t{0xFF} << 56 : 0xFF;
  static constexpr std::array<uint8_t, 32> kMask = [] {
    std::array<uint8_t, 32> mask{};
    for (size_t i = 0; i < 16; ++i) mask[i] = 0xFF;
    return mask;
  }();
};

/// The ids of known pieces, for one thread. Memory is limited to kMostLines lines and to
/// kMostText bytes each of texts and ids. If all lines are full, a new piece replaces
/// another piece. Beyond kMostText the cache forgets everything.
class PieceCache {
 public:
  static constexpr size_t kLongest = 128;  ///< bytes; longer pieces are not kept
  static constexpr uint32_t kInline = 3;

  struct Entry {
    PieceKey key;
    std::array<uint32_t, kInline> ids{};  // the ids, or their places in ids_ and text_
    uint32_t count = 0;  // number of ids, plus kElsewhere if ids has places; 0: empty
  };
  static constexpr uint32_t kElsewhere = uint32_t{1} << 31;

  PieceCache() { resize(size_t{1} << kFirstBits); }

  /// Returns the entry of a piece of at most kLongest bytes, or nullptr. `hash` is the
  /// key's.
  const Entry* find(const PieceKey& key, uint64_t hash, std::string_view piece) const {
    const size_t line = hash >> shift_;
    const Entry* entry = find_in(lines_[line], key);
    if (!entry) [[unlikely]] {
      entry = find_in(lines_[line ^ 1], key);
      if (!entry) return nullptr;
    }
    if (!key.is_long()) [[likely]]
      return entry;
    return std::memcmp(text_.data() + entry->ids[1], piece.data(), piece.size()) == 0
               ? entry
               : nullptr;
  }
  /// Prefetches the memory that `find` will read.
  void prefetch(uint64_t hash) const { __builtin_prefetch(&lines_[hash >> shift_]); }
  std::span<const uint32_t> ids(const Entry& entry) const {
    if (entry.count < kElsewhere) return {entry.ids.data(), entry.count};
    return {ids_.data() + entry.ids[0], entry.count - kElsewhere};
  }
  /// Adds an unknown piece of at most kLongest bytes and at least one id.
  void add(const PieceKey& key, std::string_view piece, std::span<const uint32_t> ids);

  /// Appends the ids of a known piece, or returns false.
  bool append(std::string_view piece, std::vector<uint32_t>& out) const {
    if (piece.size() > kLongest) return false;
    const PieceKey key = PieceKey::of(piece);
    const Entry* entry = find(key, key.hash(), piece);
    if (!entry) return false;
    const auto found = ids(*entry);
    out.insert(out.end(), found.begin(), found.end());
    return true;
  }
  /// Adds the ids from `start` on, if the piece is short enough.
  void add(std::string_view piece, const std::vector<uint32_t>& out, size_t start) {
    if (piece.empty() || piece.size() > kLongest || start == out.size()) return;
    add(PieceKey::of(piece), piece, std::span(out).subspan(start));
  }

 private:
  static constexpr int kFirstBits = 10;
  static constexpr size_t kMostLines = size_t{1} << 17;  // 64 bytes each
  static constexpr size_t kMostText = size_t{1} << 22;
  struct alignas(64) Line {
    std::array<Entry, 2> entries;
  };
  static const Entry* find_in(const Line& line, const PieceKey& key) {
    // No branch depends on which of the two entries has the key.
    const bool first = line.entries[0].key == key;
    const bool second = line.entries[1].key == key;
    if (!(first | second)) [[unlikely]]
      return nullptr;
    return line.entries.data() + (second ? 1 : 0);
  }
  using Lines = std::vector<Line, LargePages<Line>>;

  void resize(size_t lines);
  void place(const Entry& entry);
  void grow();
  void forget();

  Lines lines_;
  int shift_ = 0;
  size_t used_ = 0;     // entries
  size_t evicted_ = 0;  // pieces that had to go for others
  std::string text_;
  std::vector<uint32_t> ids_;
};

}  // namespace longhaul::tokenizer
