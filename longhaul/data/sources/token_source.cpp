#include "longhaul/data/sources/token_source.h"

#include <algorithm>

namespace longhaul::data {

void TokenBatch::resize(int64_t sequences, int64_t length) {
  num_sequences = sequences;
  seq_len = length;
  const auto size = static_cast<size_t>(sequences * length);
  tokens.resize(size);
  targets.resize(size);
  positions.resize(size);
  document_start.resize(size);
}

int64_t TokenBatch::num_targets() const {
  return static_cast<int64_t>(targets.size()) -
         std::count(targets.begin(), targets.end(), kIgnore);
}

}  // namespace longhaul::data
