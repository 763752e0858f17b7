#include "longhaul/data/places/object_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::data {
namespace {

/// Small reads out of order, such as those of a footer, share requests of this size.
constexpr uint64_t kWindow = uint64_t{64} << 10;
/// A reader that was opened with AnyOrder requests pieces early after this number of
/// bytes was read in order.
constexpr uint64_t kRunBeforeAhead = uint64_t{2} << 20;
/// The first piece is small, so that its bytes come soon; each later one is twice as
/// large, up to kObjectPiece.
constexpr uint64_t kFirstPiece = uint64_t{4} << 20;

}  // namespace

ObjectReader::ObjectReader(std::shared_ptr<const StoredObject> object, Use use,
                           uint64_t ahead_end)
    : object_(std::move(object)),
      proof_(object_->info.version, object_->info.size),
      ahead_end_(std::min(ahead_end, object_->info.size)),
      piece_bytes_(kFirstPiece),
      run_before_ahead_(use == Use::FrontToBack ? 0 : kRunBeforeAhead) {}
ObjectReader::~ObjectReader() = default;

void ObjectReader::begin(uint64_t offset) {
  piece_bytes_ = kObjectPiece;
  ask_ahead(offset, 1);
}

void ObjectReader::read(uint64_t offset, std::span<std::byte> to) {
  LH_CHECK(offset <= object_->info.size && to.size() <= object_->info.size - offset,
           "data", "{}: bytes {} to {} of {}", object_->info.address.text(), offset,
           offset + to.size(), object_->info.size);
  if (offset != next_) run_ = 0;
  while (!to.empty()) {
    const size_t count = read_some(offset, to);
    prove(offset, to.first(count));
    offset += count;
    run_ += count;
    to = to.subspan(count);
  }
  next_ = offset;
}

void ObjectReader::prove(uint64_t offset, std::span<const std::byte> bytes) {
  const objects::ObjectInfo& info = object_->info;
  const uint64_t end = offset + bytes.size();
  if (!proof_.compares() || offset > in_proof_ || end <= in_proof_) return;
  proof_.update(bytes.subspan(in_proof_ - offset));
  in_proof_ = end;
  if (end < info.size || proof_.fits()) return;
  object_->store->prove_unchanged(info);
  if (object_->store->came_right(info, proof_.digest())) return;
  throw TemporaryError("objects", info.address.text() +
                                      ": other bytes came than those of the object, to "
                                      "judge by its ETag; nothing of it counts, start "
                                      "again");
}

size_t ObjectReader::copy(const Piece& piece, uint64_t offset, std::span<std::byte> to) {
  const auto count =
      static_cast<size_t>(std::min<uint64_t>(to.size(), piece.end - offset));
  std::memcpy(to.data(), piece.bytes.get() + (offset - piece.begin), count);
  return count;
}

size_t ObjectReader::read_some(uint64_t offset, std::span<std::byte> to) {
  const auto holds = [offset](const Piece& piece) {
    return piece.begin <= offset && offset < piece.end;
  };
  const bool ahead = std::ranges::any_of(pieces_, holds);
  if (!ahead && window_.bytes && holds(window_)) return copy(window_, offset, to);
  const bool in_order = run_ >= run_before_ahead_ && offset < ahead_end_;
  if (!ahead && !in_order) return read_alone(offset, to);
  if (!ahead) {
    // The read has moved to another place of the object, so that the pieces that were
    // requested are not needed any more.
    pieces_.clear();
    piece_bytes_ = kFirstPiece;
  }
  while (!pieces_.empty() && pieces_.front().end <= offset) pieces_.pop_front();
  ask_ahead(pieces_.empty() ? offset : pieces_.back().end);
  Piece& piece = pieces_.front();
  if (!piece.bytes) piece.bytes = piece.coming.get();
  return copy(piece, offset, to);
}

size_t ObjectReader::read_alone(uint64_t offset, std::span<std::byte> to) {
  if (to.size() >= 2 * kObjectPiece) {
    read_side_by_side(offset, to);
    return to.size();
  }
  if (to.size() >= kWindow) {
    object_->store->read(object_->info, offset, to);
    return to.size();
  }
  window_ = {};
  window_.begin = offset / kWindow * kWindow;
  window_.end = std::min(window_.begin + 2 * kWindow, object_->info.size);
  // The bytes are read into a buffer of their size. The buffer of objects::kPlaceBytes
  // that read_shared() would lend is too large for a window.
  const auto count = static_cast<size_t>(window_.end - window_.begin);
  std::shared_ptr<std::byte[]> bytes(new std::byte[count]);
  object_->store->read(object_->info, window_.begin, {bytes.get(), count});
  window_.bytes = std::move(bytes);
  return copy(window_, offset, to);
}

void ObjectReader::read_side_by_side(uint64_t offset, std::span<std::byte> to) {
  const uint64_t count = to.size() / kObjectPiece;
  const uint64_t each = to.size() / count + 1;
  std::vector<std::span<std::byte>> parts;
  for (uint64_t at = 0; at < to.size(); at += each) {
    parts.push_back(to.subspan(at, std::min<uint64_t>(each, to.size() - at)));
  }
  system::share_among_threads(std::ssize(parts), kPiecesAhead, [&](int64_t i) {
    const auto& part = parts[static_cast<size_t>(i)];
    const auto at = static_cast<uint64_t>(part.data() - to.data());
    object_->store->read(object_->info, offset + at, part);
  });
}

void ObjectReader::ask_ahead(uint64_t from, size_t pieces) {
  while (pieces_.size() < pieces && from < ahead_end_) {
    uint64_t end = std::min(from + piece_bytes_, ahead_end_);
    if (ahead_end_ - end <= piece_bytes_ / 2) end = ahead_end_;
    if (!pool_) {
      const uint64_t left = ahead_end_ - from;
      pool_.emplace(left <= kFirstPiece ? 1 : kPiecesAhead);
    }
    Piece& piece = pieces_.emplace_back();
    piece.begin = from;
    piece.end = end;
    piece.coming = pool_->add([object = object_, from, end] {
      return object->store->read_shared(object->info, from, end - from);
    });
    from = end;
    piece_bytes_ = std::min(piece_bytes_ * 2, kObjectPiece);
  }
}

}  // namespace longhaul::data
