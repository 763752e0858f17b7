#include "longhaul/data/tokenizer/merge_rules.h"

#include <algorithm>
#include <array>
#include <optional>
#include <queue>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr size_t kShortPiece = 24;  // symbols; above, a heap beats scanning

}  // namespace

MergeRules::MergeRules(const std::vector<Merge>& merges) : rules_(merges.size()) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    // A pair that stands twice has its last rank, as in Hugging Face.
    add(merges[rank], static_cast<uint32_t>(rank));
  }
}

void MergeRules::add(const Merge& merge, uint32_t rank) {
  rules_[(uint64_t{merge.left} << 32) | merge.right] = {rank, merge.result};
}

void MergeRules::merge(std::vector<uint32_t>& out, size_t start) const {
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
void MergeRules::merge_long(std::vector<uint32_t>& out, size_t start) const {
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

}  // namespace longhaul::data
