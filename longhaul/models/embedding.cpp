#include "longhaul/models/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include "longhaul/nn/dropout.h"
#include "longhaul/ops/scaled.h"

namespace longhaul::models {

Embedding::Embedding(tensor::ParameterSet& parameters, const families::Embedding& form)
    : dropout_(form.dropout), scale_(form.scale), rounds_scale_(form.rounds_scale) {
  if (form.positions) positions_.emplace(parameters, form.positions->name);
  if (form.types) types_.emplace(parameters, form.types->name);
  if (form.norm) norm_.emplace(parameters, *form.norm);
}

at::Tensor Embedding::forward(const nn::Embedding& tokens,
                              const nn::ForwardContext& context) const {
  const nn::Batch& batch = context.batch;
  at::Tensor x = tokens.partial(batch.tokens);
  x = ops::scaled(x, rounds_scale_ ? ops::rounded_to(x.scalar_type(), scale_) : scale_);
  // The tables of tokens and of positions are split over the ranks by rows, so that one
  // sum over the ranks (leave()) completes both.
  if (positions_) x = x + positions_->partial(batch.positions);
  x = context.leave(x);
  if (types_) {
    const at::Tensor types =
        batch.segments.defined() ? batch.segments : at::zeros_like(batch.tokens);
    x = x + types_->partial(context.outside(types));
  }
  if (norm_) x = norm_->forward(x, context);
  return nn::dropout(x, dropout_, nn::kNoLayer, nn::DropoutSite::Embedding, context);
}

}  // namespace longhaul::models
