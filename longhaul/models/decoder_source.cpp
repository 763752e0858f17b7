#include "longhaul/models/decoder_source.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <numbers>

// Shapes: B sequences of T tokens, N = B T, H hidden, D head dim.

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

/// Turned by the angles of positions [T] int64.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions,
                   const RopeConfig& rope) {
  const at::Tensor half =
      at::outer(positions.to(at::kDouble), frequencies(rope, x.size(3)));
  const at::Tensor angles = at::cat({half, half}, 1);  // [T, D]
  const auto parts = x.chunk(2, -1);
  const at::Tensor turned = at::cat({-parts[1], parts[0]}, -1);
  return x * angles.cos().to(at::kFloat) + turned * angles.sin().to(at::kFloat);
}

/// Causal, of q [B, Hq, T, D] over k and v [B, Hkv, T, D]: [B T, Hq D].
at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
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

}  // namespace

at::Tensor DecoderSource::norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor mean = (x * x).mean(-1, /*keepdim=*/true);
  return x * at::rsqrt(mean + settings_.rms_norm_eps) * files_.vector(name, x.size(-1));
}

at::Tensor DecoderSource::embed(const at::Tensor& ids,
                                const at::Tensor& /*positions*/) const {
  return files_.rows("model.embed_tokens.weight", vocab_size_, settings_.hidden_size,
                     ids);
}

/// [B, heads, T, D].
at::Tensor DecoderSource::project(const at::Tensor& x, const std::string& name,
                                  int64_t heads, int64_t length) const {
  const int64_t width = heads * settings_.head_dim;
  at::Tensor y = files_.product(x, name + ".weight", width);
  if (biases_) y = y + files_.vector(name + ".bias", width);
  return y.view({-1, length, heads, settings_.head_dim}).transpose(1, 2);
}

at::Tensor DecoderSource::attention(const at::Tensor& x, const std::string& layer,
                                    const at::Tensor& positions) const {
  const DecoderSettings& s = settings_;
  const int64_t length = positions.size(0);
  at::Tensor q = project(x, layer + "q_proj", s.num_attention_heads, length);
  at::Tensor k = project(x, layer + "k_proj", s.num_key_value_heads, length);
  const at::Tensor v = project(x, layer + "v_proj", s.num_key_value_heads, length);
  if (head_norms_) {
    q = norm(q, layer + "q_norm.weight");
    k = norm(k, layer + "k_norm.weight");
  }
  const at::Tensor mixed =
      attended(rotated(q, positions, s.rope), rotated(k, positions, s.rope), v);
  return files_.product(mixed, layer + "o_proj.weight", s.hidden_size);
}

at::Tensor DecoderSource::layer(int64_t number, const at::Tensor& x,
                                const at::Tensor& positions) const {
  const std::string name = "model.layers." + std::to_string(number) + ".";
  const at::Tensor normed = norm(x, name + "input_layernorm.weight");
  const at::Tensor h = x + attention(normed, name + "self_attn.", positions);
  const at::Tensor in = norm(h, name + "post_attention_layernorm.weight");
  const int64_t inner = settings_.intermediate_size;
  const at::Tensor gate = files_.product(in, name + "mlp.gate_proj.weight", inner);
  const at::Tensor up = files_.product(in, name + "mlp.up_proj.weight", inner);
  return h + files_.product(gate * at::sigmoid(gate) * up, name + "mlp.down_proj.weight",
                            settings_.hidden_size);
}

at::Tensor DecoderSource::logits(const at::Tensor& x) const {
  return files_.product(
      norm(x, "model.norm.weight"),
      settings_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
      vocab_size_);
}

}  // namespace longhaul::models
