#include "longhaul/models/decoder_source.h"

#include <ATen/ATen.h>

#include "longhaul/models/source_parts.h"

// Shapes: B sequences of T tokens, N = B T, H hidden, D head dim.

namespace longhaul::models {

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
  if (parts_.biases) y = y + files_.vector(name + ".bias", width);
  return y.view({-1, length, heads, settings_.head_dim}).transpose(1, 2);
}

at::Tensor DecoderSource::attention(const at::Tensor& x, const std::string& layer,
                                    const at::Tensor& positions) const {
  const DecoderSettings& s = settings_;
  const int64_t length = positions.size(0);
  at::Tensor q = project(x, layer + "q_proj", s.num_attention_heads, length);
  at::Tensor k = project(x, layer + "k_proj", s.num_key_value_heads, length);
  const at::Tensor v = project(x, layer + "v_proj", s.num_key_value_heads, length);
  if (parts_.head_norms) {
    q = norm(q, layer + "q_norm.weight");
    k = norm(k, layer + "k_norm.weight");
  }
  const auto turned = [&](const at::Tensor& y) {
    return source::rotated(y, positions, s.rope, s.head_dim);
  };
  const at::Tensor mixed = source::attended(turned(q), turned(k), v, parts_.window);
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
