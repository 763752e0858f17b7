#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "longhaul/models/gpt_neox/gpt_neox.h"
#include "longhaul/models/source_parts.h"

// Shapes: B sequences of T tokens, N = B T, H hidden, D head dim.

namespace longhaul::models {
namespace {

class GptNeoxSource : public SourceModel {
 public:
  GptNeoxSource(const ModelConfig& config, const SourceFiles& files)
      : files_(files),
        settings_(gpt_neox_settings(config)),
        vocab_size_(config.vocab_size) {}

  at::Tensor embed(const at::Tensor& ids,
                   const at::Tensor& /*positions*/) const override {
    return files_.rows("gpt_neox.embed_in.weight", vocab_size_, settings_.hidden_size,
                       ids);
  }

  at::Tensor layer(int64_t number, const at::Tensor& x,
                   const at::Tensor& positions) const override {
    const std::string name = "gpt_neox.layers." + std::to_string(number) + ".";
    const at::Tensor attention_result =
        attention(norm(x, name + "input_layernorm"), name + "attention.", positions);
    const at::Tensor h = attention_result + x;
    const at::Tensor in =
        norm(settings_.parallel_residual ? x : h, name + "post_attention_layernorm");
    const at::Tensor up =
        projection(in, name + "mlp.dense_h_to_4h", settings_.intermediate_size, true);
    return h + projection(activation(up), name + "mlp.dense_4h_to_h",
                          settings_.hidden_size, true);
  }

  at::Tensor logits(const at::Tensor& x) const override {
    return files_.product(
        norm(x, "gpt_neox.final_layer_norm"),
        settings_.tie_word_embeddings ? "gpt_neox.embed_in.weight" : "embed_out.weight",
        vocab_size_);
  }

 private:
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return source::layer_normed(x, files_.vector(name + ".weight", x.size(-1)),
                                files_.vector(name + ".bias", x.size(-1)),
                                settings_.layer_norm_eps);
  }

  at::Tensor projection(const at::Tensor& x, const std::string& name, int64_t out,
                        bool bias) const {
    const at::Tensor y = files_.product(x, name + ".weight", out);
    return bias ? y + files_.vector(name + ".bias", out) : y;
  }

  at::Tensor activation(const at::Tensor& x) const {
    if (!settings_.tanh_gelu) return 0.5 * x * (1.0 + at::erf(x / std::sqrt(2.0)));
    const at::Tensor inside =
        std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + at::tanh(inside));
  }

  at::Tensor attention(const at::Tensor& x, const std::string& name,
                       const at::Tensor& positions) const {
    const int64_t width = settings_.hidden_size;
    const bool bias = settings_.attention_bias;
    // Of each head its query, key and value: [B, heads, T, 3 D].
    const auto parts = projection(x, name + "query_key_value", 3 * width, bias)
                           .view({-1, positions.size(0), settings_.num_attention_heads,
                                  3 * settings_.head_dim()})
                           .transpose(1, 2)
                           .chunk(3, -1);
    const auto turned = [&](const at::Tensor& y) {
      return source::rotated(y, positions, settings_.rope, settings_.rotated);
    };
    return projection(source::attended(turned(parts[0]), turned(parts[1]), parts[2]),
                      name + "dense", width, bias);
  }

  const SourceFiles& files_;
  GptNeoxSettings settings_;
  int64_t vocab_size_;
};

}  // namespace

std::unique_ptr<SourceModel> make_gpt_neox_source(const ModelConfig& config,
                                                  const SourceFiles& files) {
  return std::make_unique<GptNeoxSource>(config, files);
}

}  // namespace longhaul::models
