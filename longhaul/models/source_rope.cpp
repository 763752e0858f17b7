#include "longhaul/models/source_rope.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace longhaul::models {
namespace {

/// Radians per position, [D / 2], fp64.
at::Tensor frequencies(const RopeConfig& rope, int64_t head_dim) {
  const auto exponents = at::arange(0, head_dim, 2, at::kDouble) / head_dim;
  at::Tensor plain = at::pow(rope.theta, -exponents);
  if (rope.kind == RopeConfig::Kind::Plain) return plain;
  if (rope.kind == RopeConfig::Kind::Linear) return plain / rope.factor;
  // llama3: long waves are stretched, short ones kept, in between a bit of both.
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const at::Tensor waves_in_original = original * plain / (2.0 * std::numbers::pi);
  const at::Tensor kept = ((waves_in_original - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor))
                              .clamp(0.0, 1.0);
  return plain * (kept + (1.0 - kept) / rope.factor);
}

}  // namespace

at::Tensor source_rope(const at::Tensor& x, const at::Tensor& positions,
                       const RopeConfig& rope) {
  const at::Tensor half =
      at::outer(positions.to(at::kDouble), frequencies(rope, x.size(3)));
  const at::Tensor angles = at::cat({half, half}, 1);  // [T, D]
  const auto parts = x.chunk(2, -1);
  const at::Tensor turned = at::cat({-parts[1], parts[0]}, -1);
  return x * angles.cos().to(at::kFloat) + turned * angles.sin().to(at::kFloat);
}

at::Tensor source_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
  const int64_t length = q.size(2);
  const int64_t groups = q.size(1) / k.size(1);
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor hidden = at::ones({length, length}, at::kBool).triu(1);
  const at::Tensor scores =
      (at::matmul(q, k.repeat_interleave(groups, 1).transpose(2, 3)) * scale)
          .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor mixed =
      at::matmul(at::softmax(scores, -1), v.repeat_interleave(groups, 1));
  return mixed.transpose(1, 2).reshape({q.size(0) * length, -1});
}

}  // namespace longhaul::models
