#include "longhaul/infer/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "longhaul/infer/micro_batch.h"

namespace longhaul::infer {

double Evaluation::loss() const {
  return targets == 0 ? 0.0 : cross_entropy_sum / static_cast<double>(targets);
}

double Evaluation::perplexity() const { return std::exp(loss()); }

Evaluation evaluate(const models::Model& model, const data::TokenSource& source,
                    comm::Communicator& data, const EvaluateOptions& options) {
  const at::NoGradGuard no_grad;
  int64_t sequences = source.num_sequences();
  if (options.max_sequences > 0) sequences = std::min(sequences, options.max_sequences);
  // Micro batches are dealt to the ranks in turn, so that their content is the same for
  // every number of ranks.
  const int64_t micro_batches = (sequences + options.micro_size - 1) / options.micro_size;
  const int64_t mine = (micro_batches - data.rank() + data.size() - 1) / data.size();
  // Summed by micro batch in fp64: the result hardly depends on the number of ranks.
  double sum = 0.0;
  int64_t targets = 0;
  data::TokenBatch batch;
  for (int64_t i = 0; i < mine; ++i) {
    const int64_t first = (i * data.size() + data.rank()) * options.micro_size;
    const int64_t rows = std::min(options.micro_size, sequences - first);
    batch.resize(rows, source.seq_len());
    for (int64_t r = 0; r < rows; ++r) source.read(first + r, batch, r);
    const MicroBatch part = micro_batch(batch, 0, rows, options.device, options.fused);
    const at::Tensor hidden = model.hidden(part.tokens, part.context);
    sum += model.loss(hidden, part.targets, part.context, {1.0, 0.0, options.fused})
               .cross_entropy_sum;
    targets += batch.num_targets();
    if (options.progress) options.progress(i + 1, mine);
  }
  std::array<double, 2> totals = {sum, static_cast<double>(targets)};
  data.all_reduce_wait({totals.data(), 2, DType::F64}, comm::ReduceOp::Sum);
  return {totals[0], static_cast<int64_t>(totals[1]), sequences};
}

}  // namespace longhaul::infer
