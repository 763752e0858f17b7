#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <span>

#include "longhaul/data/places/stored_object.h"
#include "longhaul/objects/etag.h"
#include "longhaul/objects/shared_places.h"
#include "longhaul/system/worker_pool.h"

namespace longhaul::data {

/// The usual and the largest number of bytes of an object that one request reads, and how
/// many pieces are requested before they are needed. The last piece also takes a rest of
/// the object of up to half a piece.
inline constexpr uint64_t kObjectPiece = uint64_t{8} << 20;
inline constexpr uint64_t kLargestPiece = kObjectPiece + kObjectPiece / 2;
static_assert(kLargestPiece <= objects::kPlaceBytes);
inline constexpr int kPiecesAhead = 4;
/// The memory of one ObjectReader: the pieces that are requested early and the piece that
/// is read.
inline constexpr uint64_t kObjectReaderBytes = (kPiecesAhead + 1) * objects::kPlaceBytes;

/// Reads the bytes of one object. If the bytes are read in order, the reader requests the
/// next bytes before they are needed. Not thread-safe.
class ObjectReader {
 public:
  enum class Use { FrontToBack, AnyOrder };

  /// Opens an object. Bytes from `ahead_end` on are never requested early. With
  /// FrontToBack the first read begins to request bytes early. With AnyOrder this begins
  /// only after several reads have followed one another.
  ObjectReader(std::shared_ptr<const StoredObject> object, Use use,
               uint64_t ahead_end = UINT64_MAX);
  ~ObjectReader();

  /// Requests one piece from `offset` on, before it is read.
  void begin(uint64_t offset);

  /// Fills `to`, which must lie inside the object. Throws what the store throws. If the
  /// object has been read from its first byte to its last one, compares the bytes with
  /// its ETag. Throws TemporaryError if the bytes do not match the ETag, and InputError
  /// if the object was replaced.
  void read(uint64_t offset, std::span<std::byte> to);

 private:
  using Bytes = std::shared_ptr<const std::byte[]>;
  struct Piece {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::future<Bytes> coming;
    Bytes bytes;
  };
  /// Copies bytes of `piece` to the front of `to`. Returns the number of copied bytes.
  static size_t copy(const Piece& piece, uint64_t offset, std::span<std::byte> to);
  /// Reads what one piece or window in memory holds from `offset` on, or what one request
  /// reads. Returns the number of bytes.
  size_t read_some(uint64_t offset, std::span<std::byte> to);
  size_t read_alone(uint64_t offset, std::span<std::byte> to);
  /// Fills a large `to` by several requests at once.
  void read_side_by_side(uint64_t offset, std::span<std::byte> to);
  /// Requests pieces from offset `from` on until pieces_ holds `pieces` of them.
  void ask_ahead(uint64_t from, size_t pieces = kPiecesAhead + 1);

  /// Adds bytes that were read to the check against the ETag, and ends this check at the
  /// end of the object.
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
  /// This member is the last one, so that its threads end before the members that they
  /// use are destroyed.
  std::optional<system::WorkerPool> pool_;
};

}  // namespace longhaul::data
