#include "longhaul/models/stage.h"

namespace longhaul::models {

nn::Tensors run_stage(
    const nn::Tensors& input, const nn::ForwardContext& context,
    const std::function<nn::Tensors()>& embed, int64_t first_layer, size_t blocks,
    const std::function<nn::Tensors(size_t, const nn::Tensors&)>& block) {
  const auto run = [&](int64_t layer, const nn::BlockFunction& part,
                       const nn::Tensors& x) {
    return context.run_block ? context.run_block(layer, part, x) : part(x);
  };
  nn::Tensors x = input;
  if (input.empty()) {
    x = run(nn::kEmbeddingLayer, [&](const nn::Tensors&) { return embed(); }, {});
  }
  for (size_t i = 0; i < blocks; ++i) {
    // By value: a backward may run it again.
    const auto one = [block, i](const nn::Tensors& in) { return block(i, in); };
    x = run(first_layer + static_cast<int64_t>(i), one, x);
  }
  return x;
}

nn::Tensors run_head(const nn::Tensors& x, const nn::ForwardContext& context,
                     const nn::BlockFunction& head) {
  return context.run_block ? context.run_block(nn::kHeadLayer, head, x) : head(x);
}

}  // namespace longhaul::models
