#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace longhaul::models::source {
namespace {

/// Stretches frequencies as YaRN does. Two bounds are the frequencies that turn beta_fast
/// and beta_slow times within the original positions; between them the stretching grows
/// from none to `factor`.
at::Tensor yarn_frequencies(const RopeConfig& rope, const at::Tensor& plain,
                            int64_t turned) {
  const auto bound = [&](double turns) {
    const double waves = static_cast<double>(rope.original_max_position_embeddings) /
                         (2.0 * std::numbers::pi * turns);
    return 0.5 * static_cast<double>(turned) * std::log(waves) / std::log(rope.theta);
  };
  double first = bound(rope.beta_fast);
  double last = bound(rope.beta_slow);
  if (rope.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(turned - 1));
  if (first == last) last += 0.001;
  const at::Tensor index = at::arange(turned / 2, at::kDouble);
  const at::Tensor stretched = ((index - first) / (last - first)).clamp(0.0, 1.0);
  return plain * (1.0 - stretched) + plain / rope.factor * stretched;
}

/// Returns radians per position, [turned / 2], fp64.
at::Tensor frequencies(const RopeConfig& rope, int64_t turned) {
  const auto exponents = at::arange(0, turned, 2, at::kDouble) / turned;
  at::Tensor plain = at::pow(rope.theta, -exponents);
  if (rope.kind == RopeConfig::Kind::Plain) return plain;
  if (rope.kind == RopeConfig::Kind::Linear) return plain / rope.factor;
  if (rope.kind == RopeConfig::Kind::Yarn) return yarn_frequencies(rope, plain, turned);
  // The kind "llama3" stretches long waves and keeps short waves, with a blend in
  // between.
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const at::Tensor waves_in_original = original * plain / (2.0 * std::numbers::pi);
  const at::Tensor kept = ((waves_in_original - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor))
                              .clamp(0.0, 1.0);
  return plain * (kept + (1.0 - kept) / rope.factor);
}

}  // namespace

at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions,
                   const families::Rotation& rotation) {
  const auto& [rope, turned] = rotation;
  const at::Tensor half = at::outer(positions.to(at::kDouble), frequencies(rope, turned));
  const at::Tensor angles = at::cat({half, half}, 1);  // [T, turned]
  const at::Tensor first = x.narrow(-1, 0, turned);
  const auto parts = first.chunk(2, -1);
  const at::Tensor across = at::cat({-parts[1], parts[0]}, -1);
  const at::Tensor cos = (rope.attention_factor * angles.cos()).to(at::kFloat);
  const at::Tensor sin = (rope.attention_factor * angles.sin()).to(at::kFloat);
  return at::cat({first * cos + across * sin, x.narrow(-1, turned, x.size(-1) - turned)},
                 -1);
}

}  // namespace longhaul::models::source
