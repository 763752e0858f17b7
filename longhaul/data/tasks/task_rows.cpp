#include "longhaul/data/tasks/task_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/data/store/row_plan.h"

namespace longhaul::data {
namespace {

/// The most parts that share a place, which bounds the size of a batch.
constexpr size_t kMostShared = 32;

}  // namespace

TaskRows::TaskRows(TaskTokens tokens, int64_t seq_len, int64_t vocab_size)
    : tokens_(std::move(tokens)), seq_len_(seq_len), vocab_size_(vocab_size) {
  // The parts that stand in rows, and how many of their tokens the model sees.
  std::vector<int32_t> lengths;
  std::vector<uint32_t> standing;
  // By the tokens that a part of one scored token sees, the last such part and how many
  // there are.
  std::unordered_map<std::string_view, std::pair<uint32_t, size_t>> seen;
  next_.resize(tokens_.parts.size(), 0);
  size_t begin = 0;
  for (uint32_t number = 0; number < tokens_.parts.size(); ++number) {
    const TaskPart& part = tokens_.parts[number];
    begins_.push_back(begin);
    const std::string_view bytes(
        reinterpret_cast<const char*>(tokens_.ids.data() + begin),  // NOLINT
        static_cast<size_t>(part.tokens - 1) * sizeof(int32_t));
    begin += static_cast<size_t>(part.tokens);
    if (part.scored == 1) {
      auto& [last, count] = seen[bytes];
      if (count == kMostShared) count = 0;
      most_shared_ = std::max(most_shared_, ++count);
      const uint32_t before = std::exchange(last, number);
      if (count > 1) next_[before] = number;
      if (count > 1) continue;
    }
    standing.push_back(number);
    lengths.push_back(part.tokens - 1);
  }
  LH_CHECK(begin == tokens_.ids.size(), "tasks", "{} tokens of parts, {} ids", begin,
           tokens_.ids.size());
  const std::vector<uint32_t> row_of = best_fit_rows(lengths, seq_len);
  order_.resize(row_of.size());
  std::iota(order_.begin(), order_.end(), 0U);
  std::ranges::stable_sort(order_, {}, [&](uint32_t i) { return row_of[i]; });
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i + 1 == order_.size() || row_of[order_[i]] != row_of[order_[i + 1]]) {
      ends_.push_back(i + 1);
    }
  }
  for (uint32_t& part : order_) part = standing[part];
}

std::vector<std::string> TaskRows::losses() const {
  std::vector<std::string> terms;
  for (size_t i = 0; i < most_shared_; ++i) {
    const std::string number = i == 0 ? "" : fmt::format(" {}", i + 1);
    terms.push_back(kNextToken + number);
    terms.push_back("request" + number);
  }
  return terms;
}

void TaskRows::shape(TokenBatch& batch, int64_t rows) const {
  batch.resize(rows, seq_len_);
  batch.targets.resize(2 * most_shared_,
                       std::vector<int32_t>(batch.tokens.size(), kIgnore));
}

void TaskRows::read(int64_t index, TokenBatch& batch, int64_t row) const {
  const BatchRow to = batch_row(*this, index, batch, row);
  const auto length = static_cast<size_t>(seq_len_);
  const auto term = [&](size_t number) {
    return std::span(batch.targets[number])
        .subspan(static_cast<size_t>(row) * length, length);
  };
  std::ranges::fill(to.tokens, 0);
  for (size_t t = 0; t < 2 * most_shared_; ++t) std::ranges::fill(term(t), kIgnore);
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
    std::ranges::fill(term(1).subspan(place - scored, scored), part.request);
    size_t t = 2;
    for (uint32_t next = next_[order_[i]]; next != 0; next = next_[next], t += 2) {
      const auto last =
          begins_[next] + static_cast<size_t>(tokens_.parts[next].tokens) - 1;
      term(t)[place - 1] = tokens_.ids[last];
      term(t + 1)[place - 1] = tokens_.parts[next].request;
    }
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
