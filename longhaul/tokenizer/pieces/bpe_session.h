#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/pieces/bpe_model.h"
#include "longhaul/tokenizer/pieces/piece_cache.h"
#include "longhaul/tokenizer/split/patterns.h"

namespace longhaul::tokenizer {

/// The fast way to encode with a BpeModel. ASCII text is split 64 bytes at a time, and
/// known pieces come out of a cache. The cache makes later texts faster and never changes
/// ids. For one thread; the model must outlive the session.
class BpeSession {
 public:
  explicit BpeSession(const BpeModel& model, system::Isa isa = system::best_isa());

  /// Appends the ids of a piece. Throws InputError for a byte that the vocabulary lacks.
  void encode_piece(std::string_view piece, std::vector<uint32_t>& out);
  /// Appends the ids of the pieces of `text`, which is valid UTF-8. Throws like
  /// encode_piece.
  void encode_text(SplitPattern pattern, std::string_view text,
                   std::vector<uint32_t>& out);

 private:
  static constexpr size_t kBatch = 64;      // pieces whose memory is fetched together
  static constexpr size_t kPieces = 512;    // found before any is looked up
  static constexpr size_t kWaiting = 2048;  // ids that wait to be appended
  static constexpr size_t kRoom = PieceCache::kLongest + 8;  // ids of one piece
  struct Looked {
    PieceKey key;
    uint64_t hash;
  };

  size_t find_pieces(SplitPattern pattern, std::string_view text, size_t pos);
  size_t add_ends(uint64_t starts, size_t pos);
  void put_pieces(std::string_view text, size_t pos, std::vector<uint32_t>& out);
  void put_piece(std::string_view piece, std::vector<uint32_t>& out);
  uint32_t* put(const Looked& looked, std::string_view piece, uint32_t* to);
  uint32_t* put_new(const PieceKey& key, std::string_view piece, uint32_t* to);
  void flush(std::vector<uint32_t>& out);

  const BpeModel& model_;
  const CharClasses& classes_;
  ClassifyAscii classify_;
  PieceCache cache_;
  std::array<size_t, kPieces + 2 * kAsciiWindow> ends_;  // ends of the pieces found
  size_t found_ = 0;
  std::array<Looked, kBatch> looked_;
  std::array<uint32_t, kWaiting + kRoom> ids_;
  uint32_t* end_;  // end of the waiting ids
};

}  // namespace longhaul::tokenizer
