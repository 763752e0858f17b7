#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <span>

#include "longhaul/data/places/input_objects.h"
#include "longhaul/objects/etag.h"
#include "longhaul/objects/shared_places.h"
#include "longhaul/system/worker_pool.h"

namespace longhaul::data {

/// The piece of an object that one request reads, and how many pieces are asked for
/// before they are needed. The last piece takes a rest of up to half a piece with it.
inline constexpr uint64_t kObjectPiece = uint64_t{8} << 20;
inline constexpr uint64_t kLargestPiece = kObjectPiece + kObjectPiece / 2;
static_assert(kLargestPiece <= objects::kPlaceBytes);
inline constexpr int kPiecesAhead = 4;
/// The memory of one ObjectReader: the pieces ahead and the one that is read.
inline constexpr uint64_t kObjectReaderBytes = (kPiecesAhead + 1) * objects::kPlaceBytes;

/// Reads the bytes of one object. Where they are read in order, the next ones are asked
/// for before they are needed. Not thread-safe.
class ObjectReader {
 public:
  enum class Use { FrontToBack, AnyOrder };

  /// Opens an object, of which nothing is asked for ahead from byte `ahead_end` on. With
  /// FrontToBack the first read begins to read ahead; else that begins after some reads
  /// that follow one another.
  ObjectReader(std::shared_ptr<const StoredObject> object, Use use,
               uint64_t ahead_end = UINT64_MAX);
  ~ObjectReader();

  /// Asks for one piece from `offset` on, so that it comes before it is read.
  void begin(uint64_t offset);

  /// Fills `to`, which must lie inside the object. Throws what the store throws. Where
  /// the object has been read from its first byte to its last one, compares the bytes
  /// with its ETag: throws TemporaryError where others came, and InputError where the
  /// object was replaced.
  void read(uint64_t offset, std::span<std::byte> to);

 private:
  using Bytes = std::shared_ptr<const std::byte[]>;
  struct Piece {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::future<Bytes> coming;
    Bytes bytes;
  };
  /// Copies bytes of `piece` to the front of `to`. Returns how many.
  static size_t copy(const Piece& piece, uint64_t offset, std::span<std::byte> to);
  /// Reads as much as one piece, one window or one request gives. Returns how much.
  size_t read_some(uint64_t offset, std::span<std::byte> to);
  size_t read_alone(uint64_t offset, std::span<std::byte> to);
  /// Fills a large `to` by several requests at once.
  void read_side_by_side(uint64_t offset, std::span<std::byte> to);
  /// Asks for pieces from `from` on until there are `pieces` of them.
  void ask_ahead(uint64_t from, size_t pieces = kPiecesAhead + 1);

  /// Adds what was read to the proof, and ends it at the end of the object.
  void prove(uint64_t offset, std::span<const std::byte> bytes);

  std::shared_ptr<const StoredObject> object_;
  objects::EtagProof proof_;
  uint64_t in_proof_ = 0;  ///< bytes from the first on that are in `proof_`
  uint64_t ahead_end_;
  uint64_t next_ = 0;  ///< the end of the last read
  uint64_t run_ = 0;   ///< bytes that were read in order up to next_
  uint64_t piece_bytes_;
  uint64_t run_before_ahead_;
  std::deque<Piece> pieces_;  ///< one behind the other
  Piece window_;              ///< around the last small read out of order
  /// The last member: its threads end before what they use.
  std::optional<system::WorkerPool> pool_;
};

}  // namespace longhaul::data
