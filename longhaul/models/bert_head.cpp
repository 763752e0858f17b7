#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/tanh.h>

#include <optional>

#include "longhaul/models/head.h"
#include "longhaul/nn/linear.h"
#include "longhaul/nn/loss_head.h"
#include "longhaul/nn/norm.h"
#include "longhaul/ops/gelu.h"
#include "longhaul/ops/linear/products.h"

// Shapes: B sequences, S positions, T = B S, H hidden, R masked tokens, V vocabulary.

namespace longhaul::models {
namespace {

/// Tells whether the second text of a sequence follows its first text: two logits of
/// tanh(dense(first token)).
class NextSentence {
 public:
  explicit NextSentence(tensor::ParameterSet& parameters)
      : pooler_(parameters, "bert.pooler.dense", nn::Bias::Yes),
        relation_(parameters, "cls.seq_relationship", nn::Bias::Yes) {}

  /// Maps x [T, H] to [B, 2]. Copies the first token's rows, so that the graph does not
  /// keep all of x.
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const {
    const int64_t width = x.size(1), rest = (context.batch.seq - 1) * width;
    const at::Tensor first =
        at::split_with_sizes(x.view({context.batch.rows, -1}), {width, rest}, 1)[0]
            .clone();
    return relation_.forward(at::tanh(pooler_.forward(first, context)), context);
  }

 private:
  nn::Linear pooler_, relation_;
};

/// Everything between the last block and the losses, inside of one SplitRegion: each rank
/// has every masked token, and the gradient of its part of the vocabulary.
class BertHead : public Head {
 public:
  BertHead(tensor::ParameterSet& parameters, const families::BertHead& form,
           const tensor::ParameterPtr& words)
      : dense_(parameters, "cls.predictions.transform.dense", nn::Bias::Yes),
        norm_(parameters, {families::Norm::Kind::Layer,
                           "cls.predictions.transform.LayerNorm", form.eps}),
        gelu_(form.activation),
        words_(words),
        bias_(parameters.take("cls.predictions.bias")) {
    if (form.next_sentence) next_sentence_.emplace(parameters);
  }

  /// Maps [T, H], or this rank's tokens of it, to [R, H], and to [B, 2] as well if there
  /// is a second head.
  nn::Tensors forward(const nn::Tensors& x,
                      const nn::ForwardContext& context) const override {
    const at::Tensor all = context.enter(x[0]).x;
    const at::Tensor masked =
        at::index_select(all, 0, nn::rows_with_target(context.batch));
    const at::Tensor inner = dense_.forward(masked, context);
    nn::Tensors out = {norm_.forward(ops::gelu(inner, gelu_, context.fused), context)};
    if (next_sentence_) out.push_back(next_sentence_->forward(all, context));
    return out;
  }

  at::Tensor loss(const nn::Tensors& hidden,
                  const nn::ForwardContext& context) const override {
    const at::Tensor targets = at::index_select(context.batch.targets.at(0), 0,
                                                nn::rows_with_target(context.batch));
    const at::Tensor loss =
        nn::loss_head_inside(hidden[0], targets, words_, bias_, 0, context);
    return next_sentence_ ? loss + nn::loss_inside(hidden.at(1), 1, context) : loss;
  }

  at::Tensor target_rows(const nn::Tensors& hidden,
                         const nn::ForwardContext& /*context*/) const override {
    return hidden[0];
  }

  at::Tensor logits(const at::Tensor& hidden) const override {
    return ops::linear_product(hidden, words_->weight(), bias_->weight());
  }

 private:
  nn::Linear dense_;
  nn::Norm norm_;
  Activation gelu_;
  tensor::ParameterPtr words_;
  tensor::ParameterPtr bias_;
  std::optional<NextSentence> next_sentence_;
};

}  // namespace

std::unique_ptr<Head> make_head(tensor::ParameterSet& parameters,
                                const families::BertHead& form,
                                const tensor::ParameterPtr& tokens) {
  return std::make_unique<BertHead>(parameters, form, tokens);
}

}  // namespace longhaul::models
