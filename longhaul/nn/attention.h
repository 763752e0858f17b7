#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"
#include "longhaul/ops/rope.h"

namespace longhaul::nn {

/// Sizes of one attention layer. The local numbers of heads are read from the shapes of
/// the projections' results, so the same code serves a part of the heads.
struct AttentionSizes {
  int64_t hidden = 0;
  int64_t query_heads = 0;
  int64_t key_heads = 0;
  int64_t head_dim = 0;
  double stddev = 0.02;
};

/// Grouped-query self-attention with rotary positions. Names: q_proj, k_proj, v_proj,
/// o_proj.
class Attention {
 public:
  Attention(const std::string& name, const AttentionSizes& sizes, int64_t layer);
  /// x [T, H] -> [T, H], both of this rank's part of T (SplitRegion). Collective there.
  at::Tensor forward(const at::Tensor& x, const ops::RopeTable& rope,
                     const ForwardContext& context) const;
  std::vector<ParameterPtr> parameters() const;
  /// Key heads that this rank has.
  int64_t key_heads() const { return k_.weight()->slice().extent[0] / head_dim_; }

 private:
  Linear q_, k_, v_, o_;
  int64_t head_dim_;
  int64_t layer_;
};

}  // namespace longhaul::nn
