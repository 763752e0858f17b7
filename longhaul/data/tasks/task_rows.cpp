#include "longhaul/data/tasks/task_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/data/store/row_plan.h"

namespace longhaul::data {

TaskRows::TaskRows(TaskTokens tokens, int64_t seq_len, int64_t vocab_size)
    : tokens_(std::move(tokens)), seq_len_(seq_len), vocab_size_(vocab_size) {
  std::vector<int32_t> lengths;  // by part, the tokens that the model sees
  size_t begin = 0;
  for (const TaskPart& part : tokens_.parts) {
    lengths.push_back(part.tokens - 1);
    begins_.push_back(begin);
    begin += static_cast<size_t>(part.tokens);
  }
  LH_CHECK(begin == tokens_.ids.size(), "tasks", "{} tokens of parts, {} ids", begin,
           tokens_.ids.size());
  const std::vector<uint32_t> row_of = best_fit_rows(lengths, seq_len);
  order_.resize(row_of.size());
  std::iota(order_.begin(), order_.end(), 0U);
  std::ranges::stable_sort(order_, {}, [&](uint32_t part) { return row_of[part]; });
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i + 1 == order_.size() || row_of[order_[i]] != row_of[order_[i + 1]]) {
      ends_.push_back(i + 1);
    }
  }
}

void TaskRows::shape(TokenBatch& batch, int64_t rows) const {
  batch.resize(rows, seq_len_);
  batch.targets.emplace_back(batch.tokens.size(), kIgnore);
}

void TaskRows::read(int64_t index, TokenBatch& batch, int64_t row) const {
  const BatchRow to = batch_row(*this, index, batch, row);
  const auto length = static_cast<size_t>(seq_len_);
  const auto requests =
      std::span(batch.targets[1]).subspan(static_cast<size_t>(row) * length, length);
  std::ranges::fill(to.tokens, 0);
  std::ranges::fill(to.targets, kIgnore);
  std::ranges::fill(requests, kIgnore);
  const auto begin_anew = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      to.document_start[i] = static_cast<int32_t>(begin);
      to.positions[i] = static_cast<int32_t>(i - begin);
    }
  };
  const auto at = static_cast<size_t>(index);
  size_t place = 0;
  for (size_t i = at == 0 ? 0 : ends_[at - 1]; i < ends_[at]; ++i) {
    const TaskPart& part = tokens_.parts[order_[i]];
    const auto seen = static_cast<size_t>(part.tokens - 1);
    const auto scored = static_cast<size_t>(part.scored);
    const auto ids = std::span(tokens_.ids).subspan(begins_[order_[i]], seen + 1);
    std::ranges::copy(ids.first(seen), to.tokens.subspan(place).begin());
    begin_anew(place, place + seen);
    place += seen;
    std::ranges::copy(ids.last(scored), to.targets.subspan(place - scored).begin());
    std::ranges::fill(requests.subspan(place - scored, scored), part.request);
  }
  begin_anew(place, length);
  set_real_length(batch, row, static_cast<int64_t>(place));
}

std::string TaskRows::describe() const {
  return fmt::format("{} in {} of {}", counted(tokens_.requests, "request"),
                     counted(num_sequences(), "row"), seq_len_);
}

std::string TaskRows::fingerprint() const {
  return hash_hex(tokens_.bytes() + std::to_string(seq_len_));
}

}  // namespace longhaul::data
