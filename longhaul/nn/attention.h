#pragma once

#include <optional>

#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/ops/rope.h"

namespace longhaul::nn {

/// What some families have in their attention.
struct AttentionParts {
  Bias bias = Bias::No;  ///< of q_proj, k_proj and v_proj
  /// Each head of queries and keys is normed before it is rotated (q_norm, k_norm), with
  /// this eps.
  std::optional<double> head_norm_eps = {};
  Bias out_bias = Bias::No;  ///< of o_proj
  /// A query sees so many keys at most, its own the last.
  int64_t window = ops::kNoWindow;
  double dropout = 0.0;  ///< of the probabilities
};

/// Grouped-query self-attention, with rotary positions or without; causal where the batch
/// has no document_end. The numbers of heads
/// are read from the shapes of the projections' results, so the same code serves a part
/// of the heads.
class Attention {
 public:
  /// Takes the weights of NAME.q_proj, k_proj, v_proj and o_proj, and what the parts ask
  /// for.
  Attention(ParameterSet& parameters, const std::string& name, int64_t head_dim,
            int64_t layer, const AttentionParts& parts = {});
  /// x [T, H] -> [T, H], both of this rank's part of T (SplitRegion). `rope` is null
  /// where positions are the embedding's. Collective there.
  at::Tensor forward(const at::Tensor& x, const ops::RopeTable* rope,
                     const ForwardContext& context) const;
  /// Key heads that this rank has.
  int64_t key_heads() const { return k_.weight()->slice().extent[0] / head_dim_; }

 private:
  ops::AttentionMask mask(const ForwardContext& context) const;
  /// Projected, normed and rotated: [T, heads, D] each.
  ops::Heads heads(const ops::LinearInput& in, const ops::RopeTable* rope,
                   const ForwardContext& context) const;

  Linear q_, k_, v_;
  OutLinear o_;
  std::optional<ops::HeadNorms> norms_;
  int64_t head_dim_;
  int64_t layer_;
  int64_t window_;
  double dropout_;
};

}  // namespace longhaul::nn
