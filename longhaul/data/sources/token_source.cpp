#include "longhaul/data/sources/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {

void TokenBatch::resize(int64_t rows, int64_t length) {
  num_sequences = rows;
  seq_len = length;
  const auto size = static_cast<size_t>(rows * length);
  tokens.resize(size);
  targets.resize(1);
  targets[0].resize(size);
  positions.resize(size);
  document_start.resize(size);
  segments.clear();
  document_end.clear();
  real.clear();
  pairs.clear();
  sides.clear();
  sequences.clear();
  index.clear();
}

int64_t TokenBatch::num_targets(size_t term) const {
  if (term == 0 && !pairs.empty()) {
    int64_t count = 0;
    for (const std::vector<Pair>& of_row : pairs) count += std::ssize(of_row);
    return count;
  }
  const std::vector<int32_t>& all = targets.at(term);
  return std::ssize(all) - std::count(all.begin(), all.end(), kIgnore);
}

int64_t TokenBatch::num_real() const {
  if (real.empty()) return num_sequences * seq_len;
  return std::count(real.begin(), real.end(), 1);
}

void TokenSource::limit_ids(int64_t vocab_size) {
  if (max_token_id() <= vocab_size) return;
  fail_input("data",
             "{}: holds token id {}, but the model's vocabulary has {} ids; use data "
             "made with the model's tokenizer",
             describe(), max_token_id() - 1, vocab_size);
}

std::vector<DocumentPart> TokenSource::documents(int64_t index) const {
  DocumentPart whole;
  whole.document = index;
  whole.record = index;
  whole.tokens = seq_len();
  return {std::move(whole)};
}

std::vector<int64_t> TokenSource::sequences_with(const DocumentPart& part) const {
  const bool here = part.store.empty() && part.document < num_sequences();
  return here ? std::vector<int64_t>{part.document} : std::vector<int64_t>();
}

std::vector<DocumentPart> TokenSource::documents_named(const std::string& /*file*/,
                                                       int64_t /*record*/) const {
  return {};
}

BatchRow batch_row(const TokenSource& source, int64_t index, TokenBatch& batch,
                   int64_t row) {
  LH_CHECK(index >= 0 && index < source.num_sequences(), "data", "sequence {} of {}",
           index, source.num_sequences());
  LH_CHECK(batch.seq_len == source.seq_len() && row >= 0 && row < batch.num_sequences,
           "data", "row {} of a batch [{}, {}] for sequences of {}", row,
           batch.num_sequences, batch.seq_len, source.seq_len());
  const auto length = static_cast<size_t>(batch.seq_len);
  const size_t begin = static_cast<size_t>(row) * length;
  const auto part = [&](std::vector<int32_t>& all) {
    return std::span(all).subspan(begin, length);
  };
  return {part(batch.tokens), part(batch.targets[0]), part(batch.positions),
          part(batch.document_start)};
}

void fill_plain_positions(const BatchRow& row) {
  std::iota(row.positions.begin(), row.positions.end(), 0);
  std::fill(row.document_start.begin(), row.document_start.end(), 0);
}

void set_real_length(TokenBatch& batch, int64_t row, int64_t length) {
  if (batch.real.empty()) {
    if (length == batch.seq_len) return;
    batch.real.assign(batch.tokens.size(), 1);
  }
  const auto begin = batch.real.begin() + row * batch.seq_len;
  std::fill(begin, begin + length, 1);
  std::fill(begin + length, begin + batch.seq_len, 0);
}

}  // namespace longhaul::data
