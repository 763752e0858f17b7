#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>

#include <optional>

#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/loss_head.h"
#include "tests/toy_family/toy.h"

namespace longhaul::toy {
namespace {

struct ToyBlock {
  nn::RmsNorm norm;
  nn::FeedForward feed_forward;
};

class Toy : public models::Model {
 public:
  Toy(const StageSpec& stage, ParameterSet& parameters) : first_(stage.first_layer) {
    if (stage.embedding) words_.emplace(parameters, "words");
    for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
      const std::string name = "blocks." + std::to_string(i);
      nn::RmsNorm norm(parameters, name + ".norm", 1e-5);
      blocks_.push_back({std::move(norm), nn::FeedForward(parameters, name)});
    }
    if (!stage.head) return;
    norm_.emplace(parameters, "norm", 1e-5);
    head_.emplace(parameters, "head");
  }

  at::Tensor hidden(const at::Tensor& input,
                    const nn::ForwardContext& context) const override {
    const auto run = [&](int64_t layer, const nn::BlockFunction& block,
                         const at::Tensor& x) {
      return context.run_block ? context.run_block(layer, block, x) : block(x);
    };
    at::Tensor x = input;
    if (words_) {
      x = run(
          nn::kEmbeddingLayer,
          [&](const at::Tensor& ids) { return words_->forward(ids, context); }, x);
    }
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const auto block = [&, i](const at::Tensor& in) {
        const ToyBlock& b = blocks_[i];
        return in + b.feed_forward.forward(b.norm.forward(in, context), context);
      };
      x = run(first_ + static_cast<int64_t>(i), block, x);
    }
    return norm_ ? norm_->forward(x, context) : x;
  }

  ops::LossHeadResult loss(const at::Tensor& hidden, const at::Tensor& targets,
                           const nn::ForwardContext& context,
                           const ops::LossHeadOptions& options) const override {
    return nn::loss_head(hidden, head_->weight(), targets, context, options);
  }
  at::Tensor logits(const at::Tensor& hidden) const override {
    return at::linear(hidden, head_->weight()->weight());
  }
  nn::KvCache make_cache(int64_t, int64_t) const override { return {}; }
  void prepare(int64_t, at::Device) override {}

 private:
  int64_t first_;
  std::optional<nn::Embedding> words_;
  std::vector<ToyBlock> blocks_;
  std::optional<nn::RmsNorm> norm_;
  std::optional<nn::Linear> head_;
};

std::unique_ptr<models::Model> make_toy(const ModelConfig&, const StageSpec& stage,
                                        ParameterSet& parameters) {
  return std::make_unique<Toy>(stage, parameters);
}

}  // namespace

const models::ModelFamily& toy_model_family() {
  static const models::ModelFamily family{"toy", make_toy, nullptr};
  return family;
}

}  // namespace longhaul::toy
