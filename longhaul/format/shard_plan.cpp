#include "longhaul/format/shard_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::format {
namespace {

bool is_split(const std::optional<ShardSplit>& split) {
  return split && split->unit != ShardUnit::None;
}

/// Returns the rows or columns of one unit along the dim that splits.
int64_t unit_size(const ShardPlan& plan, const ShardSplit& rule,
                  const TensorSlice& whole) {
  if (rule.unit != ShardUnit::QueryHeads && rule.unit != ShardUnit::KeyHeads) return 1;
  const int64_t heads =
      rule.unit == ShardUnit::QueryHeads ? plan.query_heads : plan.key_heads;
  const int64_t size = whole.global_shape[static_cast<size_t>(rule.dim)];
  LH_CHECK(size % heads == 0, "shard plan", "{}: dim {} has {} rows for {} heads",
           whole.name, rule.dim, size, heads);
  return size / heads;
}

/// Returns the elements of the dim that rank `index` has.
ShardRange part_of(const ShardPlan& plan, const ShardSplit& rule,
                   const TensorSlice& whole, int64_t index) {
  const auto rank = static_cast<size_t>(index);
  const int64_t unit = unit_size(plan, rule, whole);
  ShardRange part;
  switch (rule.unit) {
    case ShardUnit::QueryHeads:
      part = plan.heads.query[rank];
      break;
    case ShardUnit::KeyHeads:
      part = plan.heads.key[rank];
      break;
    default:
      part = even_part(whole.global_shape[static_cast<size_t>(rule.dim)], plan.tp, index);
  }
  return {part.begin * unit, part.end * unit};
}

std::string sizes_line(std::string_view what, int64_t count,
                       const std::vector<int64_t>& sizes) {
  return fmt::format("{} {} over tp {}: {}", what, count, sizes.size(),
                     fmt::join(sizes, " "));
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

/// Returns the line of one tensor; empty if the tensor divides.
std::string uneven_split(const ShardPlan& plan, const SplitTensor& tensor) {
  const auto& [whole, rule] = tensor;
  if (!is_split(rule)) return {};
  const int64_t unit = unit_size(plan, *rule, whole);
  const int64_t count = whole.global_shape[static_cast<size_t>(rule->dim)] / unit;
  std::vector<int64_t> sizes;
  if (rule->unit == ShardUnit::KeyHeads && plan.tp > plan.key_heads) {
    // The number of ranks that hold each head.
    for (int64_t h = 0; h < plan.key_heads; ++h) {
      sizes.push_back(even_part(plan.tp, plan.key_heads, h).size());
    }
    return fmt::format("key heads {} over tp {}: held by {} ranks", count, plan.tp,
                       fmt::join(sizes, " "));
  }
  for (int64_t i = 0; i < plan.tp; ++i) {
    sizes.push_back(part_of(plan, *rule, whole, i).size() / unit);
  }
  if (std::all_of(sizes.begin(), sizes.end(),
                  [&](int64_t size) { return size == sizes.front(); })) {
    return {};
  }
  return sizes_line(unit_name(rule->unit), count, sizes);
}

}  // namespace

ShardRange even_part(int64_t count, int64_t parts, int64_t index) {
  const int64_t size = count / parts;
  const int64_t larger = count % parts;
  const int64_t begin = index * size + std::min(index, larger);
  return {begin, begin + size + (index < larger ? 1 : 0)};
}

HeadSplit split_heads(int64_t tp, int64_t query_heads, int64_t key_heads) {
  LH_CHECK(tp >= 1 && key_heads >= 1 && query_heads % key_heads == 0, "shard plan",
           "tp {}, {} query heads, {} key heads", tp, query_heads, key_heads);
  if (tp > query_heads) {
    fail_config("parallel",
                "parallel.tp = {} is more than the model's {} query heads "
                "(num_attention_heads); use at most {}",
                tp, query_heads, query_heads);
  }
  const int64_t group = query_heads / key_heads;
  HeadSplit split;
  if (tp <= key_heads) {
    for (int64_t r = 0; r < tp; ++r) {
      const ShardRange keys = even_part(key_heads, tp, r);
      split.key.push_back(keys);
      split.query.push_back({keys.begin * group, keys.end * group});
    }
    return split;
  }
  for (int64_t head = 0; head < key_heads; ++head) {
    const int64_t holders = even_part(tp, key_heads, head).size();
    for (int64_t i = 0; i < holders; ++i) {
      const ShardRange queries = even_part(group, holders, i);
      split.key.push_back({head, head + 1});
      split.query.push_back({head * group + queries.begin, head * group + queries.end});
    }
  }
  return split;
}

ShardPlan make_shard_plan(int64_t query_heads, int64_t key_heads, int64_t tp,
                          bool sequence) {
  return {tp, sequence && tp > 1, query_heads, key_heads,
          split_heads(tp, query_heads, key_heads)};
}

KeyReplica key_replica(const ShardPlan& plan, int64_t index) {
  const auto rank = static_cast<size_t>(index);
  if (plan.tp <= plan.key_heads) return {static_cast<int>(index), 0, 1};
  const auto& keys = plan.heads.key;
  const auto before = std::count(keys.begin(), keys.begin() + index, keys[rank]);
  const auto all = std::count(keys.begin(), keys.end(), keys[rank]);
  return {static_cast<int>(keys[rank].begin), static_cast<int>(before),
          static_cast<int>(all)};
}

ParameterShard plan_parameter(const ShardPlan& plan, const SplitTensor& tensor,
                              int64_t index) {
  const auto& [whole, rule] = tensor;
  LH_CHECK(whole.is_whole() && index >= 0 && index < plan.tp, "shard plan",
           "{} for rank {} of tp {}", describe_slice(whole), index, plan.tp);
  ParameterShard shard{whole, GradientSum::None, true};
  if (plan.tp == 1) return shard;
  if (!is_split(rule)) {
    // Without sequence parallelism every rank sees all tokens and forms the whole
    // gradient.
    const bool in_parts = rule.has_value() || plan.sequence;
    shard.sum = in_parts ? GradientSum::Tp : GradientSum::First;
    shard.counted = index == 0;
    return shard;
  }
  LH_CHECK(rule->dim >= 0 && static_cast<size_t>(rule->dim) < whole.global_shape.size(),
           "shard plan", "{} has no dim {}", describe_slice(whole), rule->dim);
  const auto dim = static_cast<size_t>(rule->dim);
  // Heads are split by split_heads, since a key head may have fewer rows than ranks that
  // hold it.
  const bool heads =
      rule->unit == ShardUnit::QueryHeads || rule->unit == ShardUnit::KeyHeads;
  if (!heads && whole.global_shape[dim] < plan.tp) {
    fail_config("parallel",
                "parallel.tp = {} leaves ranks without a part of {} {} (dim {}); use a "
                "smaller tp",
                plan.tp, whole.name, describe_shape(whole.global_shape), rule->dim);
  }
  const ShardRange part = part_of(plan, *rule, whole, index);
  shard.slice.offset[dim] = part.begin;
  shard.slice.extent[dim] = part.size();
  if (rule->unit == ShardUnit::KeyHeads && plan.tp > plan.key_heads) {
    shard.sum = GradientSum::KeyReplicas;
    shard.counted = key_replica(plan, index).index == 0;
  }
  return shard;
}

std::vector<std::string> uneven_splits(const ShardPlan& plan,
                                       const std::vector<SplitTensor>& tensors) {
  std::vector<std::string> lines;
  for (const SplitTensor& tensor : tensors) {
    std::string line = uneven_split(plan, tensor);
    const bool seen = std::find(lines.begin(), lines.end(), line) != lines.end();
    if (!line.empty() && !seen) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace longhaul::format
