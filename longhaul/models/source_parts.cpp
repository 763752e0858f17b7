#include "longhaul/models/source_parts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
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
  // llama3: long waves are stretched and short waves kept, with a blend in between.
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const at::Tensor waves_in_original = original * plain / (2.0 * std::numbers::pi);
  const at::Tensor kept = ((waves_in_original - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor))
                              .clamp(0.0, 1.0);
  return plain * (kept + (1.0 - kept) / rope.factor);
}

}  // namespace

at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions,
                   const RopeConfig& rope, int64_t turned) {
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

at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const families::Attention& attention) {
  const int64_t length = q.size(2);
  const at::Tensor ones = at::ones({length, length}, at::kBool);
  // True for the keys that a query does not see.
  at::Tensor hidden = attention.causal ? ones.triu(1) : ones.logical_not();
  if (attention.window && *attention.window < length) {
    hidden = hidden.logical_or(ones.tril(-*attention.window));
  }
  const double scale =
      attention.scale.value_or(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  const int64_t groups = q.size(1) / k.size(1);
  const at::Tensor scores =
      (at::matmul(q, k.repeat_interleave(groups, 1).transpose(2, 3)) * scale)
          .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor mixed =
      at::matmul(at::softmax(scores, -1), v.repeat_interleave(groups, 1));
  return mixed.transpose(1, 2).reshape({q.size(0) * length, -1});
}

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::Silu:
      return x * at::sigmoid(x);
    case Activation::GeluExact:
      return 0.5 * x * (1.0 + at::erf(x / std::numbers::sqrt2));
    case Activation::GeluTanh:
      break;
  }
  const at::Tensor inside =
      std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + at::tanh(inside));
}

at::Tensor layer_normed(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias, double eps) {
  const at::Tensor centred = x - x.mean(-1, /*keepdim=*/true);
  const at::Tensor variance = (centred * centred).mean(-1, /*keepdim=*/true);
  return centred * at::rsqrt(variance + eps) * weight + bias;
}

at::Tensor settled_choice(const at::Tensor& right, const at::Tensor& logits,
                          const at::Tensor& known, double roundoff) {
  // A config.json that differs may send a token to another number of experts.
  if (!known.defined() || known.size(1) != right.size(1)) return right;
  const int64_t tokens = known.size(0);
  const int64_t sequences = right.size(0) / tokens;
  const at::Tensor last = logits.narrow(0, (sequences - 1) * tokens, tokens);
  // A logit is a sum of rounded products: it may be off by a few roundings of the
  // largest.
  const at::Tensor off = 8.0 * roundoff * (1.0 + std::get<0>(last.abs().max(-1)));
  const at::Tensor least = std::get<0>(last.gather(1, known).min(-1));
  const at::Tensor bound = std::get<0>(at::topk(last, right.size(1), -1)).select(-1, -1);
  const at::Tensor allowed = least.ge(bound - off).repeat({sequences}).unsqueeze(1);
  return at::where(allowed, known.repeat({sequences, 1}), right);
}

}  // namespace longhaul::models::source
