#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>

#include <optional>

#include "longhaul/models/model.h"
#include "longhaul/nn/auxiliary_loss.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/loss_head.h"
#include "tests/toy_family/toy.h"

namespace longhaul::toy {
namespace {

struct ToyBlock {
  nn::RmsNorm norm;
  nn::FeedForward feed_forward;
};

/// Of the mean square of hidden states in the loss, after each block.
constexpr double kSizeWeight = 0.02;

class Toy : public models::Model {
 public:
  Toy(const StageSpec& stage, ParameterSet& parameters) {
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

  nn::Tensors embed(const nn::ForwardContext& context) const override {
    const at::Tensor words = words_->forward(context.batch.tokens, context);
    return {words, words};
  }
  nn::Tensors block(int64_t layer, const nn::Tensors& x,
                    const nn::ForwardContext& context) const override {
    const ToyBlock& b = blocks_[static_cast<size_t>(layer - stage().first_layer)];
    const at::Tensor h =
        x[0] + b.feed_forward.forward(b.norm.forward(x[0], context), context);
    const at::Tensor size = h.square().mean(1).sum() * kSizeWeight;
    return {nn::with_auxiliary_loss(h, size, 1, context), x[1]};
  }
  nn::Tensors head(const nn::Tensors& x,
                   const nn::ForwardContext& context) const override {
    return {norm_->forward(x[0] + x[1], context)};
  }

  at::Tensor loss(const nn::Tensors& hidden,
                  const nn::ForwardContext& context) const override {
    return nn::loss_head(hidden[0], head_->weight(), 0, context);
  }
  at::Tensor logits(const at::Tensor& hidden) const override {
    return at::linear(hidden, head_->weight()->weight());
  }
  nn::KvCache make_cache(int64_t, int64_t, const at::TensorOptions&) const override {
    return {};
  }
  void prepare(int64_t, at::Device) override {}

 private:
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
