#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "longhaul/models/gpt2/gpt2.h"
#include "longhaul/models/source_parts.h"

// Shapes: B sequences of T tokens, N = B T, H hidden, D head dim.

namespace longhaul::models {
namespace {

class Gpt2Source : public SourceModel {
 public:
  Gpt2Source(const ModelConfig& config, const SourceFiles& files)
      : files_(files),
        settings_(gpt2_settings(config)),
        vocab_size_(config.vocab_size),
        positions_(config.max_position_embeddings) {}

  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const override {
    const int64_t width = settings_.n_embd;
    return files_.rows("transformer.wte.weight", vocab_size_, width, ids) +
           files_.rows("transformer.wpe.weight", positions_, width, positions);
  }

  at::Tensor layer(int64_t number, const at::Tensor& x,
                   const at::Tensor& positions) const override {
    const std::string name = "transformer.h." + std::to_string(number) + ".";
    const at::Tensor h =
        x + attention(norm(x, name + "ln_1"), name + "attn.", positions.size(0));
    const at::Tensor up =
        projection(norm(h, name + "ln_2"), name + "mlp.c_fc", settings_.n_inner);
    const at::Tensor inside =
        std::sqrt(2.0 / std::numbers::pi) * (up + 0.044715 * up * up * up);
    return h + projection(0.5 * up * (1.0 + at::tanh(inside)), name + "mlp.c_proj",
                          settings_.n_embd);
  }

  at::Tensor logits(const at::Tensor& x) const override {
    return files_.product(
        norm(x, "transformer.ln_f"),
        settings_.tie_word_embeddings ? "transformer.wte.weight" : "lm_head.weight",
        vocab_size_);
  }

 private:
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return source::layer_normed(x, files_.vector(name + ".weight", x.size(-1)),
                                files_.vector(name + ".bias", x.size(-1)),
                                settings_.layer_norm_epsilon);
  }

  /// Conv1D: its weight is [in, out].
  at::Tensor projection(const at::Tensor& x, const std::string& name, int64_t out) const {
    return files_.transposed_product(x, name + ".weight", out) +
           files_.vector(name + ".bias", out);
  }

  at::Tensor attention(const at::Tensor& x, const std::string& name,
                       int64_t length) const {
    const int64_t heads = settings_.n_head;
    const auto parts = projection(x, name + "c_attn", 3 * settings_.n_embd).chunk(3, -1);
    const auto split = [&](const at::Tensor& y) {  // [B, heads, T, D]
      return y.reshape({-1, length, heads, settings_.n_embd / heads}).transpose(1, 2);
    };
    return projection(source::attended(split(parts[0]), split(parts[1]), split(parts[2])),
                      name + "c_proj", settings_.n_embd);
  }

  const SourceFiles& files_;
  Gpt2Settings settings_;
  int64_t vocab_size_;
  int64_t positions_;
};

}  // namespace

std::unique_ptr<SourceModel> make_gpt2_source(const ModelConfig& config,
                                              const SourceFiles& files) {
  return std::make_unique<Gpt2Source>(config, files);
}

}  // namespace longhaul::models
