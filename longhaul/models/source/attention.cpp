#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

#include <limits>

// Shapes: B sequences of T tokens, D head dim.

namespace longhaul::models::source {
namespace {

/// Returns softmax(cap(scale q k^T)) v: q [B, Hq, T, D], k and v [B, Hkv, T, D] -> [B T,
/// Hq D]. A token sees the tokens before it within the window, or all tokens if the
/// attention is not causal.
at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const families::Attention& attention) {
  const int64_t length = q.size(2);
  const at::Tensor ones = at::ones({length, length}, at::kBool);
  // True for the keys that a query does not see.
  at::Tensor hidden = attention.causal ? ones.triu(1) : ones.logical_not();
  if (attention.window && *attention.window < length) {
    hidden = hidden.logical_or(ones.tril(-*attention.window));
  }
  const auto scale = attention.scale_of<double>(attention.head_dim);
  const int64_t groups = q.size(1) / k.size(1);
  at::Tensor scores =
      at::matmul(q, k.repeat_interleave(groups, 1).transpose(2, 3)) * scale;
  const double cap = attention.score_cap;
  if (cap > 0.0) scores = at::tanh(scores / cap) * cap;
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor mixed =
      at::matmul(at::softmax(scores, -1), v.repeat_interleave(groups, 1));
  return mixed.transpose(1, 2).reshape({q.size(0) * length, -1});
}

}  // namespace

at::Tensor evaluate(const SourceFiles& files, const families::Attention& attention,
                    const at::Tensor& x, const at::Tensor& positions) {
  const auto parts =
      evaluate_all(files, {attention.query, attention.key, attention.value}, x);
  const auto by_head = [&](const at::Tensor& y) {  // [B, heads, T, D]
    return y
        .reshape(
            {-1, positions.size(0), y.size(-1) / attention.head_dim, attention.head_dim})
        .transpose(1, 2);
  };
  at::Tensor q = parts[0], k = parts[1];
  const bool norms = attention.query_norm.has_value();
  if (norms && attention.norms_over_all_heads) {
    q = evaluate(files, *attention.query_norm, q);
    k = evaluate(files, *attention.key_norm, k);
  }
  q = by_head(q);
  k = by_head(k);
  if (norms && !attention.norms_over_all_heads) {
    q = evaluate(files, *attention.query_norm, q);
    k = evaluate(files, *attention.key_norm, k);
  }
  if (attention.rotation) {
    q = rotated(q, positions, *attention.rotation);
    k = rotated(k, positions, *attention.rotation);
  }

  return evaluate(files, attention.out, attended(q, k, by_head(parts[2]), attention));
}

}  // namespace longhaul::models::source
