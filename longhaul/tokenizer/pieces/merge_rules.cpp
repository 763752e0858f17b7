#include "longhaul/tokenizer/pieces/merge_rules.h"

#include <array>
#include <queue>

#include "longhaul/base/error.h"

namespace longhaul::tokenizer {
namespace {

constexpr size_t kManyMerges = 8192;  // with as many merges a square of 2 MB pays off
constexpr uint32_t kDirectIds = 512;
constexpr size_t kShortPiece = 48;  // symbols; beyond this a heap is faster than scanning

}  // namespace

MergeRules::MergeRules(const std::vector<Merge>& merges) : rules_(merges.size()) {
  if (merges.size() >= kManyMerges) {
    direct_ids_ = kDirectIds;
    direct_.resize(size_t{kDirectIds} * kDirectIds);
  }
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    // A repeated pair has its last rank, as in Hugging Face.
    add(merges[rank], static_cast<uint32_t>(rank));
  }
}

void MergeRules::add(const Merge& merge, uint32_t rank) {
  const uint64_t pair = (uint64_t{merge.left} << 32) | merge.right;
  rules_[pair] = {rank, merge.result};
  const uint64_t bit = filter_bit(pair);
  filter_[bit / 64] |= uint64_t{1} << (bit % 64);
  if ((merge.left | merge.right) < direct_ids_) {
    direct_[merge.left * direct_ids_ + merge.right] = {rank, merge.result};
  }
}

std::optional<MergeRules::Step> MergeRules::best(const uint32_t* symbols,
                                                 size_t count) const {
  std::optional<Step> found;
  for (size_t i = 0; i + 1 < count; ++i) {
    const Rule next = rule(symbols[i], symbols[i + 1]);
    if (next.rank != kNoRank && (!found || next.rank < found->rank)) {
      found = Step{i, next.rank, next.result};
    }
  }
  return found;
}

size_t MergeRules::merge(uint32_t* symbols, size_t count) const {
  if (count < 2) return count;
  if (count > kShortPiece) return merge_long(symbols, count);
  // The ranks and the results of the pairs (i, i + 1).
  std::array<uint32_t, kShortPiece> ranks;
  std::array<uint32_t, kShortPiece> results;
  const auto look = [&](size_t i) {
    const Rule found = rule(symbols[i], symbols[i + 1]);
    ranks[i] = found.rank;
    results[i] = found.result;
  };
  size_t pairs = count - 1;
  for (size_t i = 0; i < pairs; ++i) look(i);
  while (pairs > 0) {
    size_t place = 0;
    uint32_t least = ranks[0];
    for (size_t i = 1; i < pairs; ++i) {
      if (ranks[i] < least) {
        least = ranks[i];
        place = i;
      }
    }
    if (least == kNoRank) break;
    symbols[place] = results[place];
    for (size_t i = place + 1; i < pairs; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i - 1] = ranks[i];
      results[i - 1] = results[i];
    }
    --pairs;
    if (place > 0) look(place - 1);
    if (place < pairs) look(place);
  }
  return pairs + 1;
}

/// Merges long pieces with a heap over a linked list, in n log n steps.
size_t MergeRules::merge_long(uint32_t* symbols, size_t size) const {
  struct Node {
    uint32_t id;
    uint32_t prev;
    uint32_t next;
  };
  constexpr uint32_t kNone = UINT32_MAX;
  struct Waiting {
    uint32_t rank;
    uint32_t pos;
    uint32_t left;
    uint32_t right;
    uint32_t result;
  };
  const auto later = [](const Waiting& a, const Waiting& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.pos > b.pos;
  };
  LH_CHECK(size < kNone, "tokenizer", "a piece of 4 GiB");
  const auto count = static_cast<uint32_t>(size);
  std::vector<Node> nodes(count);
  for (uint32_t i = 0; i < count; ++i) {
    nodes[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  }
  std::vector<Waiting> steps;
  const auto step_at = [&](uint32_t pos) -> std::optional<Waiting> {
    if (pos == kNone || nodes[pos].next == kNone) return std::nullopt;
    const uint32_t right = nodes[nodes[pos].next].id;
    const Rule found = rule(nodes[pos].id, right);
    if (found.rank == kNoRank) return std::nullopt;
    return Waiting{found.rank, pos, nodes[pos].id, right, found.result};
  };
  for (uint32_t i = 0; i + 1 < count; ++i) {
    if (const auto step = step_at(i)) steps.push_back(*step);
  }
  std::priority_queue queue(later, std::move(steps));
  std::vector<bool> gone(count, false);
  while (!queue.empty()) {
    const Waiting step = queue.top();
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
  size_t left = 0;
  for (uint32_t i = 0; i != kNone; i = nodes[i].next) symbols[left++] = nodes[i].id;
  return left;
}

}  // namespace longhaul::tokenizer
