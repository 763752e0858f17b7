#include "longhaul/tokenizer/pieces/bpe_session.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace longhaul::tokenizer {
BpeSession::BpeSession(const BpeModel& model, system::Isa isa)
    : model_(model),
      classes_(char_classes()),
      classify_(ascii_classifier(isa)),
      end_(ids_.data()) {}

void BpeSession::flush(std::vector<uint32_t>& out) {
  out.insert(out.end(), ids_.data(), end_);
  end_ = ids_.data();
}

uint32_t* BpeSession::put_new(const PieceKey& key, std::string_view piece, uint32_t* to) {
  const size_t count = model_.encode(piece, key, to);
  cache_.add(key, piece, {to, count});
  return to + count;
}

/// Writes the ids of a piece and returns their end.
inline uint32_t* BpeSession::put(const Looked& looked, std::string_view piece,
                                 uint32_t* to) {
  const PieceCache::Entry* entry = cache_.find(looked.key, looked.hash, piece);
  if (!entry) [[unlikely]]
    return put_new(looked.key, piece, to);
  if (entry->count < PieceCache::kElsewhere) [[likely]] {
    // Copies all three ids and then moves the end by `count` only. The next piece
    // overwrites the rest, and no branch depends on the count.
    std::memcpy(to, entry->ids.data(), sizeof(entry->ids));
    return to + entry->count;
  }
  const auto ids = cache_.ids(*entry);
  std::memcpy(to, ids.data(), ids.size_bytes());
  return to + ids.size();
}

void BpeSession::put_piece(std::string_view piece, std::vector<uint32_t>& out) {
  if (end_ > ids_.data() + kWaiting) flush(out);
  const PieceKey key = PieceKey::of(piece);
  if (piece.size() <= PieceCache::kLongest) {
    end_ = put({key, key.hash()}, piece, end_);
    return;
  }
  flush(out);
  const size_t start = out.size();
  out.resize(start + piece.size());
  out.resize(start + model_.encode(piece, key, out.data() + start));
}

void BpeSession::encode_piece(std::string_view piece, std::vector<uint32_t>& out) {
  if (piece.empty()) return;
  end_ = ids_.data();
  put_piece(piece, out);
  flush(out);
}

/// Notes the ends of the pieces between set bits, and returns the bytes of these pieces.
inline size_t BpeSession::add_ends(uint64_t starts, size_t pos) {
  const auto count = static_cast<size_t>(std::popcount(starts)) - 1;
  if (count == 0) return 0;
  const size_t last = 63 - static_cast<size_t>(std::countl_zero(starts));
  starts &= starts - 1;
  // Writes eight ends at a time. Later pieces overwrite the ends beyond `count`.
  size_t* next = ends_.data() + found_;
  for (size_t done = 0; done < count; done += 8) {
    for (size_t i = 0; i < 8; ++i) {
      next[done + i] = pos + static_cast<size_t>(std::countr_zero(starts));
      starts &= starts - 1;
    }
  }
  found_ += count;
  return last;
}

/// Finds pieces from `pos` on, as long as no later text can change them, and returns the
/// end of the last piece.
size_t BpeSession::find_pieces(SplitPattern pattern, std::string_view text, size_t pos) {
  found_ = 0;
  AsciiClasses classes;
  while (found_ < kPieces && pos < text.size()) {
    const size_t left = text.size() - pos;
    const char* window = text.data() + pos;
    char copy[kAsciiWindow];
    if (left < kAsciiWindow) {
      std::memset(copy, 0, sizeof(copy));
      std::memcpy(copy, window, left);
      window = copy;
    }
    classify_(window, classes);
    const size_t done = add_ends(
        ascii_piece_starts(pattern, classes, window, std::min(left, kAsciiWindow)), pos);
    if (done == 0) break;
    pos += done;
  }
  return pos;
}

/// Encodes the found pieces, the first of which begins at `pos`.
void BpeSession::put_pieces(std::string_view text, size_t pos,
                            std::vector<uint32_t>& out) {
  // 16 bytes can be read from every offset below this.
  const size_t readable = text.size() < 16 ? 0 : text.size() - 15;
  for (size_t first = 0; first < found_; first += kBatch) {
    const size_t count = std::min(kBatch, found_ - first);
    size_t start = pos;
    for (size_t i = 0; i < count; ++i) {
      const size_t end = ends_[first + i];
      const size_t size = end - start;
      Looked& looked = looked_[i];
      looked.key = size <= PieceKey::kShort && start < readable
                       ? PieceKey::padded(text.data() + start, size)
                       : PieceKey::of({text.data() + start, size});
      looked.hash = looked.key.hash();
      cache_.prefetch(looked.hash);
      start = end;
    }
    uint32_t* to = end_;
    for (size_t i = 0; i < count; ++i) {
      const size_t end = ends_[first + i];
      if (to > ids_.data() + kWaiting) [[unlikely]] {
        end_ = to;
        flush(out);
        to = end_;
      }
      to = put(looked_[i], {text.data() + pos, end - pos}, to);
      pos = end;
    }
    end_ = to;
  }
}

void BpeSession::encode_text(SplitPattern pattern, std::string_view text,
                             std::vector<uint32_t>& out) {
  if (pattern == SplitPattern::None) {
    encode_piece(text, out);
    return;
  }
  end_ = ids_.data();
  // Reserve room for about as many ids as will come, or twice the capacity.
  const size_t likely = out.size() + text.size() / 3 + 16;
  if (likely > out.capacity()) out.reserve(std::max(likely, out.capacity() * 2));
  for (size_t pos = 0; pos < text.size();) {
    if (static_cast<uint8_t>(text[pos]) < 0x80) {
      const size_t end = find_pieces(pattern, text, pos);
      put_pieces(text, pos, out);
      pos = end;
      if (pos == text.size()) break;
    }
    const size_t end = next_piece_end(pattern, classes_, text, pos);
    put_piece(text.substr(pos, end - pos), out);
    pos = end;
  }
  flush(out);
}

}  // namespace longhaul::tokenizer
