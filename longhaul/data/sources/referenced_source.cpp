#include "longhaul/data/sources/referenced_source.h"

#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {

ReferencedSource::ReferencedSource(std::shared_ptr<const TokenSource> pairs)
    : inner_(std::move(pairs)) {}

void ReferencedSource::set_sums(std::vector<double> sums) {
  LH_CHECK(std::ssize(sums) == 2 * num_pairs(), "data", "{} sums of {} pairs",
           sums.size(), num_pairs());
  sums_ = std::move(sums);
}

void ReferencedSource::read(int64_t index, TokenBatch& batch, int64_t row) const {
  inner_->read(index, batch, row);
  if (sums_.empty()) return;
  for (Pair& pair : batch.pairs.at(static_cast<size_t>(row))) {
    const auto first = static_cast<size_t>(2 * pair.number);
    pair.reference = {sums_.at(first), sums_.at(first + 1)};
  }
}

}  // namespace longhaul::data
