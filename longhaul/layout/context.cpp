#include "longhaul/layout/context.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"

namespace longhaul::layout {

ContextLayout::ContextLayout(int64_t seq_len, int ranks)
    : seq_len_(seq_len), ranks_(ranks) {
  LH_CHECK(ranks > 0, "context", "a group of {} ranks", ranks);
  const int64_t unit = ranks == 1 ? 1 : 2 * int64_t{ranks};
  if (seq_len > 0 && seq_len % unit == 0) return;
  const int64_t below = seq_len / unit * unit;
  throw ConfigError(
      "context",
      fmt::format("sequences of {} tokens cannot be cut for parallel.cp = {}: "
                  "data.seq_len must be a multiple of 2 * cp = {}; the nearest {} {}{}",
                  seq_len, ranks, unit, below > 0 ? "are" : "is",
                  below > 0 ? fmt::format("{} and ", below) : "", below + unit));
}

std::vector<ContextChunk> ContextLayout::chunks(int rank) const {
  LH_CHECK(rank >= 0 && rank < ranks_, "context", "rank {} of {}", rank, ranks_);
  if (ranks_ == 1) return {{0, 0, seq_len_}};
  const int64_t length = seq_len_ / (2 * ranks_);
  return {{rank * length, 0, length}, {(2 * ranks_ - 1 - rank) * length, length, length}};
}

std::vector<int32_t> ContextLayout::take(std::span<const int32_t> rows, int rank) const {
  const auto length = static_cast<size_t>(seq_len_);
  LH_CHECK(rows.size() % length == 0, "context", "{} values in sequences of {}",
           rows.size(), seq_len_);
  std::vector<int32_t> local;
  local.reserve(rows.size() / static_cast<size_t>(ranks_));
  for (size_t row = 0; row < rows.size(); row += length) {
    for (const ContextChunk& chunk : chunks(rank)) {
      const auto from = rows.begin() + static_cast<int64_t>(row) + chunk.begin;
      local.insert(local.end(), from, from + chunk.length);
    }
  }
  return local;
}

}  // namespace longhaul::layout
