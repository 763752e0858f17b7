#include "longhaul/data/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/data/tokenizer/byte_alphabet.h"

namespace longhaul::data {
namespace {

constexpr size_t kCacheEntries = 4096;  // direct-mapped
constexpr size_t kCachedPiece = 64;     // bytes
constexpr size_t kCacheTextLimit = size_t{1} << 22;

}  // namespace

BpeModel::BpeModel(const BpeSpec& spec)
    : rules_(spec.merges), unknown_(spec.unknown), fuse_unknown_(spec.fuse_unknown) {
  std::vector<std::optional<std::string>> bytes(spec.vocab.size());
  size_t total = 0;
  for (size_t id = 0; id < spec.vocab.size(); ++id) {
    if (!spec.vocab[id]) continue;
    bytes[id] = token_to_bytes(*spec.vocab[id]);
    if (!bytes[id]) continue;
    total += bytes[id]->size();
    if (bytes[id]->size() == 1) {
      bytes_[static_cast<uint8_t>(bytes[id]->front())] = static_cast<uint32_t>(id);
    }
  }
  LH_CHECK(total < UINT32_MAX, "tokenizer", "a vocabulary of {} bytes", total);
  wholes_.resize(std::bit_ceil(spec.vocab.size() * 2 + 16));
  whole_text_.reserve(total);
  // A piece that is a token is that token at once: always with ignore_merges, else when
  // the merges lead to it.
  std::vector<uint32_t> ids;
  for (size_t id = 0; id < spec.vocab.size(); ++id) {
    if (!bytes[id] || bytes[id]->empty()) continue;
    if (!spec.ignore_merges) {
      const bool spelled = std::all_of(bytes[id]->begin(), bytes[id]->end(), [&](char c) {
        return bytes_[static_cast<uint8_t>(c)].has_value();
      });
      if (!spelled) continue;
      ids.clear();
      add_symbols(*bytes[id], ids);
      rules_.merge(ids, 0);
      if (ids.size() != 1 || ids.front() != id) continue;
    }
    add_whole(*bytes[id], static_cast<uint32_t>(id));
  }
}

void BpeModel::add_whole(std::string_view bytes, uint32_t id) {
  const uint64_t hash = hash_bytes(bytes.data(), bytes.size());
  size_t slot = hash & (wholes_.size() - 1);
  while (wholes_[slot].size != 0) slot = (slot + 1) & (wholes_.size() - 1);
  wholes_[slot] = {hash, static_cast<uint32_t>(whole_text_.size()),
                   static_cast<uint32_t>(bytes.size()), id};
  whole_text_.append(bytes);
}

std::optional<uint32_t> BpeModel::whole(std::string_view piece, uint64_t hash) const {
  const size_t mask = wholes_.size() - 1;
  for (size_t slot = hash & mask; wholes_[slot].size != 0; slot = (slot + 1) & mask) {
    const Whole& entry = wholes_[slot];
    if (entry.hash == hash && entry.size == piece.size() &&
        std::memcmp(whole_text_.data() + entry.start, piece.data(), piece.size()) == 0) {
      return entry.id;
    }
  }
  return std::nullopt;
}

void BpeModel::add_symbols(std::string_view piece, std::vector<uint32_t>& out) const {
  bool in_unknown = false;
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    if (bytes_[byte]) {
      out.push_back(*bytes_[byte]);
      in_unknown = false;
      continue;
    }
    if (!unknown_) {
      throw InputError(
          "tokenizer",
          fmt::format("the vocabulary has no token for the byte 0x{:02X} and no unknown "
                      "token; use a tokenizer whose alphabet has all 256 bytes",
                      byte));
    }
    if (!in_unknown || !fuse_unknown_) out.push_back(*unknown_);
    in_unknown = true;
  }
}

void BpeModel::Session::encode(std::string_view piece, std::vector<uint32_t>& out) {
  const uint64_t hash = hash_bytes(piece.data(), piece.size());
  if (const auto id = model_.whole(piece, hash)) {
    out.push_back(*id);
    return;
  }
  Entry* entry = nullptr;
  if (piece.size() <= kCachedPiece) {
    if (entries_.empty()) entries_.resize(kCacheEntries);
    entry = &entries_[(hash >> 40) % kCacheEntries];
    if (entry->hash == hash && entry->key_size == piece.size() &&
        std::memcmp(keys_.data() + entry->key, piece.data(), piece.size()) == 0) {
      out.insert(out.end(), ids_.begin() + entry->ids,
                 ids_.begin() + entry->ids + entry->id_count);
      return;
    }
  }
  const size_t start = out.size();
  model_.add_symbols(piece, out);
  model_.rules_.merge(out, start);
  if (entry) remember(*entry, hash, piece, out.data() + start, out.size() - start);
}

void BpeModel::Session::remember(Entry& entry, uint64_t hash, std::string_view piece,
                                 const uint32_t* ids, size_t count) {
  if (keys_.size() > kCacheTextLimit) {
    std::fill(entries_.begin(), entries_.end(), Entry{});
    keys_.clear();
    ids_.clear();
  }
  entry = {hash, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(piece.size()),
           static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(count)};
  keys_.append(piece);
  ids_.insert(ids_.end(), ids, ids + count);
}

}  // namespace longhaul::data
