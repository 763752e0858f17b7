#include "longhaul/layout/shard_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

using format::ShardSplit;
using format::ShardUnit;

bool is_split(const std::optional<ShardSplit>& split) {
  return split && split->unit != ShardUnit::None;
}

/// Returns whether several ranks hold the same rows.
bool has_copies(const ShardPlan& plan, const ShardSplit& split) {
  return split.unit == ShardUnit::KeyHeads && plan.tp > split.heads.key;
}

std::string_view unit_name(ShardUnit unit) {
  switch (unit) {
    case ShardUnit::Vocabulary:
      return "vocabulary";
    case ShardUnit::QueryHeads:
      return "query heads";
    case ShardUnit::KeyHeads:
      return "key heads";
    default:
      return "inner size";
  }
}

/// Returns the line of the log about one tensor; empty if the tensor divides evenly.
std::string uneven_split(const ShardPlan& plan, const SplitTensor& tensor) {
  const auto& [whole, split] = tensor;
  if (!is_split(split)) return {};
  int64_t count = whole.global_shape[static_cast<size_t>(split->dim)];
  if (split->by_heads()) {
    count = split->unit == ShardUnit::QueryHeads ? split->heads.query : split->heads.key;
  }
  std::vector<int64_t> sizes;
  if (has_copies(plan, *split)) {
    // A size is the number of ranks that hold the head.
    for (int64_t h = 0; h < count; ++h) {
      sizes.push_back(format::even_part(plan.tp, count, h).size());
    }
    return fmt::format("key heads {} over tp {}: held by {} ranks", count, plan.tp,
                       fmt::join(sizes, " "));
  }
  for (int64_t i = 0; i < plan.tp; ++i) {
    sizes.push_back(format::part_of(split, count, plan.rank(i)).size());
  }
  if (std::ranges::count(sizes, sizes.front()) == std::ssize(sizes)) return {};
  return fmt::format("{} {} over tp {}: {}", unit_name(split->unit), count, plan.tp,
                     fmt::join(sizes, " "));
}

}  // namespace

KeyReplica key_replica(int64_t key_heads, const format::TpRank& rank) {
  if (rank.of <= key_heads) return {static_cast<int>(rank.index), 0, 1};
  const ShardSplit keys = {ShardUnit::KeyHeads, 0, {key_heads, key_heads}};
  const int64_t head = format::part_of(keys, key_heads, rank).begin;
  const format::ShardRange holders = format::even_part(rank.of, key_heads, head);
  return {static_cast<int>(head), static_cast<int>(rank.index - holders.begin),
          static_cast<int>(holders.size())};
}

ParameterShard plan_parameter(const ShardPlan& plan, SplitTensor tensor, int64_t index) {
  const auto& split = tensor.split;
  LH_CHECK(tensor.whole.is_whole(), "shard plan", "{} is no whole tensor",
           format::describe_slice(tensor.whole));
  ParameterShard shard{std::move(tensor.whole), GradientSum::None, true};
  const format::TensorSlice& whole = shard.slice;
  if (plan.tp == 1) return shard;
  if (!is_split(split)) {
    // Without sequence parallelism every rank sees all tokens and forms the whole
    // gradient.
    const bool in_parts = split.has_value() || plan.sequence;
    shard.sum = in_parts ? GradientSum::Tp : GradientSum::First;
    shard.counted = index == 0;
    return shard;
  }
  LH_CHECK(split->dim >= 0 && static_cast<size_t>(split->dim) < whole.global_shape.size(),
           "shard plan", "{} has no dim {}", format::describe_slice(whole), split->dim);
  const auto dim = static_cast<size_t>(split->dim);
  const format::ShardRange part =
      format::part_of(split, whole.global_shape[dim], plan.rank(index));
  LH_CHECK(part.size() > 0, "shard plan", "rank {} of tp {} has no part of {}", index,
           plan.tp, format::describe_slice(whole));
  shard.slice.offset[dim] = part.begin;
  shard.slice.extent[dim] = part.size();
  if (has_copies(plan, *split)) {
    shard.sum = GradientSum::KeyReplicas;
    shard.counted = key_replica(split->heads.key, plan.rank(index)).index == 0;
  }
  return shard;
}

std::vector<std::string> uneven_splits(const ShardPlan& plan,
                                       const std::vector<SplitTensor>& tensors) {
  std::vector<std::string> lines;
  for (const SplitTensor& tensor : tensors) {
    std::string line = uneven_split(plan, tensor);
    if (!line.empty() && std::ranges::count(lines, line) == 0) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace longhaul::layout
