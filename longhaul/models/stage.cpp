#include "longhaul/models/stage.h"

#include <ATen/ops/zeros.h>

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

nn::KvCache empty_cache(const std::vector<int64_t>& key_heads, int64_t batch,
                        int64_t capacity, int64_t head_dim,
                        const at::TensorOptions& options) {
  nn::KvCache cache;
  for (const int64_t heads : key_heads) {
    const auto store = [&] {
      return at::zeros({batch, capacity, heads, head_dim}, options);
    };
    cache.layers.push_back({store(), store()});
  }
  return cache;
}

}  // namespace longhaul::models
