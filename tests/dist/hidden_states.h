#pragma once

#include "longhaul/models/model.h"
#include "longhaul/parallel/recompute/recompute.h"

namespace longhaul::testing {

/// Returns Model::hidden of a whole model. If `again`, each block runs its forward again
/// in the backward pass. `context` must live until then.
inline nn::Tensors hidden_states(const models::Model& model,
                                 const nn::ForwardContext& context, bool again) {
  if (!again) return model.hidden({}, context);
  nn::Tensors x = model.embed(context);
  for (int64_t layer = 0; layer < model.stage().end_layer; ++layer) {
    const auto block = [&model, &context, layer](const nn::Tensors& in) {
      return model.block(layer, in, context);
    };
    x = parallel::recompute(block, x);
  }
  return model.head(x, context);
}

}  // namespace longhaul::testing
