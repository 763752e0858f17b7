#include "longhaul/data/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "longhaul/base/error.h"
#include "longhaul/data/tokenizer/byte_alphabet.h"

namespace longhaul::data {
namespace {

constexpr size_t kShortPiece = 24;      // symbols; above, a heap beats scanning
constexpr size_t kCacheEntries = 4096;  // direct-mapped
constexpr size_t kCachedPiece = 64;     // bytes
constexpr size_t kCacheTextLimit = size_t{1} << 22;

}  // namespace

BpeModel::BpeModel(const BpeSpec& spec)
    : rules_(spec.merges.size()),
      unknown_(spec.unknown),
      fuse_unknown_(spec.fuse_unknown) {
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const BpeSpec::Merge& merge = spec.merges[rank];
    // A pair that stands twice has its last rank, as in Hugging Face.
    rules_[(uint64_t{merge.left} << 32) | merge.right] = {static_cast<uint32_t>(rank),
                                                          merge.result};
  }
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
      merge(ids, 0);
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

void BpeModel::merge(std::vector<uint32_t>& out, size_t start) const {
  const size_t count = out.size() - start;
  if (count < 2) return;
  if (count > kShortPiece) {
    merge_long(out, start);
    return;
  }
  // rules[i]: of symbols i and i + 1. The lowest rank first, the leftmost among equals.
  std::array<Rule, kShortPiece> rules;
  uint32_t* symbols = out.data() + start;
  size_t left = count;
  const auto look = [&](size_t i) {
    const Rule* found = rule(symbols[i], symbols[i + 1]);
    rules[i] = found ? *found : Rule{};
  };
  for (size_t i = 0; i + 1 < left; ++i) look(i);
  while (left > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < left; ++i) {
      if (rules[i].rank < rules[best].rank) best = i;
    }
    if (rules[best].rank == UINT32_MAX) break;
    symbols[best] = rules[best].result;
    std::copy(symbols + best + 2, symbols + left, symbols + best + 1);
    std::copy(rules.data() + best + 1, rules.data() + left - 1, rules.data() + best);
    --left;
    if (best > 0) look(best - 1);
    if (best + 1 < left) look(best);
  }
  out.resize(start + left);
}

/// The same with a heap over a linked list: n log n.
void BpeModel::merge_long(std::vector<uint32_t>& out, size_t start) const {
  struct Node {
    uint32_t id;
    uint32_t prev;
    uint32_t next;
  };
  constexpr uint32_t kNone = UINT32_MAX;
  struct Step {
    uint32_t rank;
    uint32_t pos;
    uint32_t left;
    uint32_t right;
    uint32_t result;
  };
  const auto later = [](const Step& a, const Step& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.pos > b.pos;
  };
  const auto count = static_cast<uint32_t>(out.size() - start);
  LH_CHECK(out.size() - start < kNone, "tokenizer", "a piece of 4 GiB");
  std::vector<Node> nodes(count);
  for (uint32_t i = 0; i < count; ++i) {
    nodes[i] = {out[start + i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  }
  std::vector<Step> steps;
  const auto step_at = [&](uint32_t pos) -> std::optional<Step> {
    if (pos == kNone || nodes[pos].next == kNone) return std::nullopt;
    const uint32_t right = nodes[nodes[pos].next].id;
    const Rule* found = rule(nodes[pos].id, right);
    if (!found) return std::nullopt;
    return Step{found->rank, pos, nodes[pos].id, right, found->result};
  };
  for (uint32_t i = 0; i + 1 < count; ++i) {
    if (const auto step = step_at(i)) steps.push_back(*step);
  }
  std::priority_queue queue(later, std::move(steps));
  std::vector<bool> gone(count, false);
  while (!queue.empty()) {
    const Step step = queue.top();
    queue.pop();
    Node& node = nodes[step.pos];
    // An entry whose symbols have changed since is stale.
    if (gone[step.pos] || node.next == kNone || node.id != step.left ||
        nodes[node.next].id != step.right) {
      continue;
    }
    const uint32_t dropped = node.next;
    gone[dropped] = true;
    node.id = step.result;
    node.next = nodes[dropped].next;
    if (node.next != kNone) nodes[node.next].prev = step.pos;
    if (const auto before = step_at(node.prev)) queue.push(*before);
    if (const auto after = step_at(step.pos)) queue.push(*after);
  }
  size_t end = start;
  for (uint32_t i = 0; i != kNone; i = nodes[i].next) out[end++] = nodes[i].id;
  out.resize(end);
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
  model_.merge(out, start);
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
