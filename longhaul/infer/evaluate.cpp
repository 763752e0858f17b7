#include "longhaul/infer/evaluate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::infer {

namespace {

/// Takes the targets of a row away, and its pairs.
void blank(data::TokenBatch& batch, int64_t row) {
  const auto clear = [&](std::vector<int32_t>& values, int32_t value) {
    const int64_t each = std::ssize(values) / batch.num_sequences;
    std::fill_n(values.begin() + row * each, each, value);
  };
  for (std::vector<int32_t>& targets : batch.targets) clear(targets, data::kIgnore);
  if (batch.pairs.empty()) return;
  batch.pairs[static_cast<size_t>(row)].clear();
  clear(batch.sides, -1);
}

/// Reads sequences [first, first + rows) as far as they exist. The batch has at least one
/// row, and with options.full micro_size rows. Rows beyond the last sequence have no
/// targets.
void read_rows(const data::TokenSource& source, int64_t first, int64_t sequences,
               const EvaluateOptions& options, data::TokenBatch& batch) {
  const int64_t present = std::clamp<int64_t>(sequences - first, 0, options.micro_size);
  const int64_t rows = options.full ? options.micro_size : std::max<int64_t>(present, 1);
  source.shape(batch, rows);
  for (int64_t r = 0; r < rows; ++r) {
    source.read(r < present ? first + r : 0, batch, r);
    if (r >= present) blank(batch, r);
  }
}

}  // namespace

double Evaluation::term(size_t i) const {
  LH_ASSERT(targets[i] > 0, "the mean of {} sequences over no targets", sequences);
  return sums[i] / static_cast<double>(targets[i]);
}

double Evaluation::loss() const {
  double loss = 0.0;
  for (size_t i = 0; i < targets.size(); ++i) loss += term(i);
  return loss;
}

void require_targets(const data::TokenSource& source, int64_t max_sequences,
                     std::string_view name) {
  int64_t sequences = source.num_sequences();
  if (max_sequences > 0) sequences = std::min(sequences, max_sequences);
  std::vector<std::string> without = source.losses();
  data::TokenBatch batch;
  for (int64_t i = 0; i < sequences && !without.empty(); ++i) {
    source.shape(batch, 1);
    source.read(i, batch, 0);
    const std::vector<std::string> terms = source.losses();
    for (size_t term = 0; term < terms.size(); ++term) {
      if (batch.num_targets(term) > 0) std::erase(without, terms[term]);
    }
  }
  if (without.empty()) return;
  fail_input("data",
             "{}: {} read, but none has a target for {}: every label is ignored, so "
             "there is no mean loss; look at the data with longhaul inspect",
             name, counted(sequences, "sequence"), fmt::join(without, ", "));
}

double Evaluation::perplexity() const { return std::exp(loss()); }

Evaluation evaluate(const LossOf& loss, const data::TokenSource& source,
                    comm::Communicator& data, const EvaluateOptions& options) {
  int64_t sequences = source.num_sequences();
  if (options.max_sequences > 0) sequences = std::min(sequences, options.max_sequences);
  // Micro batches go to the ranks in turn, so that a micro batch has the same content for
  // every number of ranks.
  const int64_t all = (sequences + options.micro_size - 1) / options.micro_size;
  const int64_t mine = (all + data.size() - 1) / data.size();
  // Sums of micro batches in fp64, so that the result hardly depends on the number of
  // ranks.
  const size_t terms = source.losses().size();
  std::vector<double> totals(terms, 0.0);  // targets, then what `loss` returns
  for (int64_t i = 0; i < mine; i += options.micro_batches) {
    std::vector<data::TokenBatch> batches(
        static_cast<size_t>(std::min(options.micro_batches, mine - i)));
    for (size_t b = 0; b < batches.size(); ++b) {
      const int64_t number = (i + static_cast<int64_t>(b)) * data.size() + data.rank();
      read_rows(source, number * options.micro_size, sequences, options, batches[b]);
      for (size_t term = 0; term < terms; ++term) {
        totals[term] += static_cast<double>(batches[b].num_targets(term));
      }
    }
    const std::vector<double> sums = loss(batches);
    totals.resize(terms + sums.size(), 0.0);
    for (size_t term = 0; term < sums.size(); ++term) totals[terms + term] += sums[term];
    if (options.progress)
      options.progress(std::min(i + options.micro_batches, mine), mine);
  }
  data.all_reduce_wait(totals, comm::ReduceOp::Sum);
  Evaluation result;
  result.sequences = sequences;
  result.sums.assign(totals.begin() + static_cast<int64_t>(terms), totals.end());
  for (size_t term = 0; term < terms; ++term) {
    result.targets.push_back(static_cast<int64_t>(totals[term]));
  }
  return result;
}

}  // namespace longhaul::infer
