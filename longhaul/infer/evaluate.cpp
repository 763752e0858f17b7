#include "longhaul/infer/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "longhaul/infer/micro_batch.h"

namespace longhaul::infer {

namespace {

/// Sequences [first, first + rows) as far as there are any; a batch beyond the end is one
/// row without targets.
void read_rows(const data::TokenSource& source, int64_t first, int64_t sequences,
               int64_t rows, data::TokenBatch& batch) {
  const int64_t present = std::min(rows, sequences - first);
  batch.resize(std::max<int64_t>(present, 1), source.seq_len());
  for (int64_t r = 0; r < present; ++r) source.read(first + r, batch, r);
  if (present > 0) return;
  source.read(0, batch, 0);
  std::fill(batch.targets.begin(), batch.targets.end(), data::kIgnore);
}

}  // namespace

double Evaluation::loss() const {
  return targets == 0 ? 0.0 : cross_entropy_sum / static_cast<double>(targets);
}

double Evaluation::perplexity() const { return std::exp(loss()); }

LossOf loss_of(const models::Model& model, at::Device device, bool fused) {
  return [&model, device, fused](std::vector<data::TokenBatch>& batches) {
    const at::NoGradGuard no_grad;
    ops::LossHeadOptions options;
    options.fused = fused;
    double sum = 0.0;
    for (data::TokenBatch& batch : batches) {
      const MicroBatch part = micro_batch(batch, 0, batch.num_sequences, device, fused);
      const at::Tensor hidden = model.hidden(part.tokens, part.context);
      sum += model.loss(hidden, part.targets, part.context, options).cross_entropy_sum;
    }
    return sum;
  };
}

Evaluation evaluate(const LossOf& loss, const data::TokenSource& source,
                    comm::Communicator& data, const EvaluateOptions& options) {
  int64_t sequences = source.num_sequences();
  if (options.max_sequences > 0) sequences = std::min(sequences, options.max_sequences);
  // Micro batches are dealt to the ranks in turn, so that their content is the same for
  // every number of ranks.
  const int64_t all = (sequences + options.micro_size - 1) / options.micro_size;
  const int64_t mine = (all + data.size() - 1) / data.size();
  // Summed by micro batch in fp64: the result hardly depends on the number of ranks.
  double sum = 0.0;
  int64_t targets = 0;
  for (int64_t i = 0; i < mine; i += options.micro_batches) {
    std::vector<data::TokenBatch> batches(
        static_cast<size_t>(std::min(options.micro_batches, mine - i)));
    for (size_t b = 0; b < batches.size(); ++b) {
      const int64_t number = (i + static_cast<int64_t>(b)) * data.size() + data.rank();
      read_rows(source, number * options.micro_size, sequences, options.micro_size,
                batches[b]);
      targets += batches[b].num_targets();
    }
    sum += loss(batches);
    if (options.progress)
      options.progress(std::min(i + options.micro_batches, mine), mine);
  }
  std::array<double, 2> totals = {sum, static_cast<double>(targets)};
  data.all_reduce_wait({totals.data(), 2, DType::F64}, comm::ReduceOp::Sum);
  return {totals[0], static_cast<int64_t>(totals[1]), sequences};
}

}  // namespace longhaul::infer
