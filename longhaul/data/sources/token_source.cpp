#include "longhaul/data/sources/token_source.h"

#include <fmt/format.h>

#include <algorithm>

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
  sequences.clear();
  index.clear();
}

int64_t TokenBatch::num_targets(size_t term) const {
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

}  // namespace longhaul::data
