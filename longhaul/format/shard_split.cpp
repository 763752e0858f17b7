#include "longhaul/format/shard_split.h"

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::format {
namespace {

/// Returns which of `parts` even ranges of `count` elements has element `i`.
int64_t part_with(int64_t count, int64_t parts, int64_t i) {
  const int64_t size = count / parts;
  const int64_t larger = count % parts;
  const int64_t first_smaller = larger * (size + 1);
  return i < first_smaller ? i / (size + 1) : larger + (i - first_smaller) / size;
}

ShardRange query_heads_of(const Heads& heads, const TpRank& rank) {
  const int64_t group = heads.query / heads.key;
  if (rank.of <= heads.key) {
    const ShardRange keys = even_part(heads.key, rank.of, rank.index);
    return {keys.begin * group, keys.end * group};
  }
  const int64_t key = part_with(rank.of, heads.key, rank.index);
  const ShardRange holders = even_part(rank.of, heads.key, key);
  const ShardRange mine = even_part(group, holders.size(), rank.index - holders.begin);
  return {key * group + mine.begin, key * group + mine.end};
}

ShardRange key_heads_of(const Heads& heads, const TpRank& rank) {
  if (rank.of <= heads.key) return even_part(heads.key, rank.of, rank.index);
  const int64_t key = part_with(rank.of, heads.key, rank.index);
  return {key, key + 1};
}

}  // namespace

ShardRange even_part(int64_t count, int64_t parts, int64_t index) {
  const int64_t size = count / parts;
  const int64_t larger = count % parts;
  const int64_t begin = index * size + std::min(index, larger);
  return {begin, begin + size + (index < larger ? 1 : 0)};
}

ShardRange part_of(const std::optional<ShardSplit>& split, int64_t size,
                   const TpRank& rank) {
  LH_CHECK(rank.index >= 0 && rank.index < rank.of, "shard plan", "rank {} of tp {}",
           rank.index, rank.of);
  if (!split || split->unit == ShardUnit::None || rank.of == 1) return {0, size};
  if (!split->by_heads()) return even_part(size, rank.of, rank.index);
  const Heads& heads = split->heads;
  const bool of_queries = split->unit == ShardUnit::QueryHeads;
  const int64_t count = of_queries ? heads.query : heads.key;
  LH_CHECK(heads.key > 0 && heads.query % heads.key == 0 && size % count == 0,
           "shard plan", "{} elements of {} query heads and {} key heads", size,
           heads.query, heads.key);
  const ShardRange mine =
      of_queries ? query_heads_of(heads, rank) : key_heads_of(heads, rank);
  return {mine.begin * (size / count), mine.end * (size / count)};
}

}  // namespace longhaul::format
