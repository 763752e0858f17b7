#include "longhaul/models/llama/source.h"

#include <ATen/ATen.h>

#include "longhaul/models/source_rope.h"

// Shapes: B sequences of T tokens, N = B T, H hidden, D head dim.

namespace longhaul::models {

at::Tensor LlamaSource::norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor mean = (x * x).mean(-1, /*keepdim=*/true);
  return x * at::rsqrt(mean + settings_.rms_norm_eps) *
         files_.vector(name, settings_.hidden_size);
}

at::Tensor LlamaSource::embed(const at::Tensor& ids) const {
  return files_.rows("model.embed_tokens.weight", vocab_size_, settings_.hidden_size,
                     ids);
}

at::Tensor LlamaSource::attention(const at::Tensor& x, const std::string& layer,
                                  const at::Tensor& positions) const {
  const LlamaSettings& s = settings_;
  const auto project = [&](const char* name, int64_t heads) {
    return files_.product(x, layer + "self_attn." + name + ".weight", heads * s.head_dim)
        .view({-1, positions.size(0), heads, s.head_dim})
        .transpose(1, 2);  // [B, heads, T, D]
  };
  const at::Tensor q =
      source_rope(project("q_proj", s.num_attention_heads), positions, s.rope);
  const at::Tensor k =
      source_rope(project("k_proj", s.num_key_value_heads), positions, s.rope);
  const at::Tensor v = project("v_proj", s.num_key_value_heads);
  return files_.product(source_attention(q, k, v), layer + "self_attn.o_proj.weight",
                        s.hidden_size);
}

at::Tensor LlamaSource::layer(int64_t number, const at::Tensor& x,
                              const at::Tensor& positions) const {
  const std::string name = "model.layers." + std::to_string(number) + ".";
  const at::Tensor h =
      x + attention(norm(x, name + "input_layernorm.weight"), name, positions);
  const at::Tensor in = norm(h, name + "post_attention_layernorm.weight");
  const int64_t inner = settings_.intermediate_size;
  const at::Tensor gate = files_.product(in, name + "mlp.gate_proj.weight", inner);
  const at::Tensor up = files_.product(in, name + "mlp.up_proj.weight", inner);
  return h + files_.product(gate * at::sigmoid(gate) * up, name + "mlp.down_proj.weight",
                            settings_.hidden_size);
}

at::Tensor LlamaSource::logits(const at::Tensor& x) const {
  return files_.product(
      norm(x, "model.norm.weight"),
      settings_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
      vocab_size_);
}

}  // namespace longhaul::models
