#include "longhaul/nn/low_rank.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>

#include "longhaul/base/random.h"
#include "longhaul/nn/dropout.h"
#include "longhaul/ops/dropout.h"
#include "longhaul/ops/row_lengths.h"

namespace longhaul::nn {

LowRank::LowRank(tensor::ParameterSet& parameters, const families::Linear& form)
    : form_(form.adapter.value()),
      a_(parameters.take(form.name + ".lora_A.weight")),
      b_(parameters.take(form.name + ".lora_B.weight")) {
  if (!form_.magnitude) return;
  magnitude_ = parameters.take(form.name + ".lora_magnitude_vector");
}

ops::LinearInput LowRank::dropped(const ops::LinearInput& x,
                                  const ForwardContext& context) const {
  if (form_.dropout == 0.0 || !context.dropout_key) return x;
  const Batch& batch = context.batch;
  ops::Dropout draws =
      dropout_draws(form_.dropout, kNoLayer, DropoutSite::Adapter, context);
  draws.key = random_key(*context.dropout_key, a_->name());
  draws.sequences = batch.sequence_of;
  draws.index = batch.index;
  draws.first_column = a_->slice().offset[1];
  return ops::dropout(x.x, draws, context.fused);
}

/// Returns the lengths of the rows of the weight with its low-rank part, [N] in fp32.
/// They are rounded as the magnitude is, so that a new adapter scales each row by 1.
at::Tensor LowRank::lengths(const tensor::ParameterPtr& weight,
                            const ForwardContext& context) const {
  at::Tensor squares =
      ops::row_squares(weight->weight(), a_->weight(), b_->weight(), form_.scale);
  // The ranks that split the columns of a weight have parts of its rows.
  const bool by_columns = weight->split() && weight->split()->dim == 1;
  if (by_columns && context.region != nullptr) context.region->sum_features(squares);
  return squares.sqrt().to(magnitude_->weight().scalar_type()).to(at::kFloat);
}

at::Tensor LowRank::forward(const at::Tensor& y, const ops::LinearInput& x,
                            const tensor::ParameterPtr& weight,
                            const ForwardContext& context) const {
  const auto& queue = context.weight_gradients;
  const ops::LinearInput in = dropped(x, context);
  const at::Tensor part = ops::linear(ops::linear(in, a_, queue), b_, queue);
  if (!magnitude_) return at::add(y, part, form_.scale);
  const at::Tensor of_rows = lengths(weight, context);
  if (in.x.is_same(x.x)) {
    return ops::with_row_lengths(at::add(y, part, form_.scale), magnitude_, of_rows);
  }
  // The layer's own product sees the whole input. As in PEFT only the difference that the
  // scaled rows make is that of the input with dropped elements.
  const at::Tensor plain = ops::linear(in, weight, queue);
  const at::Tensor scaled =
      ops::with_row_lengths(at::add(plain, part, form_.scale), magnitude_, of_rows);
  return y + (scaled - plain);
}

}  // namespace longhaul::nn
