#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "longhaul/models/bert/bert.h"
#include "longhaul/models/source_parts.h"

// Shapes: B sequences of T tokens, N = B T, H hidden, D head dim.

namespace longhaul::models {
namespace {

class BertSource : public SourceModel {
 public:
  BertSource(const ModelConfig& config, const SourceFiles& files)
      : files_(files),
        settings_(bert_settings(config)),
        vocab_size_(config.vocab_size),
        positions_(config.max_position_embeddings) {}

  /// Of token type 0.
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const override {
    const int64_t width = settings_.hidden_size;
    const auto rows = [&](const std::string& name, int64_t count, const at::Tensor& of) {
      return files_.rows("bert.embeddings." + name + "_embeddings.weight", count, width,
                         of);
    };
    const at::Tensor sum =
        rows("word", vocab_size_, ids) +
        rows("token_type", settings_.type_vocab_size, at::zeros_like(ids)) +
        rows("position", positions_, positions);
    return norm(sum, "bert.embeddings.LayerNorm");
  }

  at::Tensor layer(int64_t number, const at::Tensor& x,
                   const at::Tensor& positions) const override {
    const std::string name = "bert.encoder.layer." + std::to_string(number) + ".";
    const at::Tensor h = norm(x + attention(x, name + "attention.", positions.size(0)),
                              name + "attention.output.LayerNorm");
    const at::Tensor up =
        dense(h, name + "intermediate.dense", settings_.intermediate_size);
    const at::Tensor down = dense(gelu(up), name + "output.dense", settings_.hidden_size);
    return norm(h + down, name + "output.LayerNorm");
  }

  at::Tensor logits(const at::Tensor& x) const override {
    const std::string name = "cls.predictions.";
    const at::Tensor inner =
        gelu(dense(x, name + "transform.dense", settings_.hidden_size));
    return files_.product(norm(inner, name + "transform.LayerNorm"),
                          "bert.embeddings.word_embeddings.weight", vocab_size_) +
           files_.vector(name + "bias", vocab_size_);
  }

 private:
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return source::layer_normed(x, files_.vector(name + ".weight", x.size(-1)),
                                files_.vector(name + ".bias", x.size(-1)),
                                settings_.layer_norm_eps);
  }

  at::Tensor dense(const at::Tensor& x, const std::string& name, int64_t out) const {
    return files_.product(x, name + ".weight", out) + files_.vector(name + ".bias", out);
  }

  at::Tensor gelu(const at::Tensor& x) const {
    if (!settings_.tanh_gelu) return 0.5 * x * (1.0 + at::erf(x / std::numbers::sqrt2));
    const at::Tensor inside =
        std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + at::tanh(inside));
  }

  at::Tensor attention(const at::Tensor& x, const std::string& name,
                       int64_t length) const {
    const int64_t heads = settings_.num_attention_heads;
    const int64_t width = settings_.hidden_size;
    const auto part = [&](const char* what) {  // [B, heads, T, D]
      return dense(x, name + "self." + what, width)
          .reshape({-1, length, heads, width / heads})
          .transpose(1, 2);
    };
    const at::Tensor seen =
        source::attended_both_ways(part("query"), part("key"), part("value"));
    return dense(seen, name + "output.dense", width);
  }

  const SourceFiles& files_;
  BertSettings settings_;
  int64_t vocab_size_;
  int64_t positions_;
};

}  // namespace

std::unique_ptr<SourceModel> make_bert_source(const ModelConfig& config,
                                              const SourceFiles& files) {
  return std::make_unique<BertSource>(config, files);
}

}  // namespace longhaul::models
