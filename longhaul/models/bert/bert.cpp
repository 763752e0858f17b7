#include "longhaul/models/bert/bert.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/nn/attention.h"
#include "longhaul/nn/dropout.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/loss_head.h"
#include "longhaul/ops/gelu.h"
#include "longhaul/ops/products.h"

// Shapes: B sequences, S positions, T = B S, H hidden, R masked tokens, V vocabulary.

namespace longhaul::models {
namespace {

nn::Gelu bert_gelu(const BertSettings& s) {
  return s.tanh_gelu ? nn::Gelu::Tanh : nn::Gelu::Exact;
}

/// LN(words + positions + token types).
class BertEmbedding {
 public:
  BertEmbedding(ParameterSet& parameters, const BertSettings& s)
      : positions_(parameters, "bert.embeddings.position_embeddings"),
        types_(parameters, "bert.embeddings.token_type_embeddings"),
        norm_(parameters, "bert.embeddings.LayerNorm", s.layer_norm_eps),
        dropout_(s.hidden_dropout) {}

  /// [T, H], of this rank's part of T.
  at::Tensor forward(const nn::Embedding& words,
                     const nn::ForwardContext& context) const {
    const nn::Batch& batch = context.batch;
    // These two are split by rows: one sum over the ranks is that of both.
    const at::Tensor x =
        context.leave(words.partial(batch.tokens) + positions_.partial(batch.positions));
    const at::Tensor types =
        batch.segments.defined() ? batch.segments : at::zeros_like(batch.tokens);
    const at::Tensor y = norm_.forward(x + types_.partial(context.outside(types)));
    return nn::dropout(y, dropout_, nn::kNoLayer, nn::DropoutSite::Embedding,
                       context);
  }

 private:
  nn::Embedding positions_, types_;
  nn::LayerNorm norm_;
  double dropout_;
};

/// h = LN(x + attention(x)), then LN(h + feed_forward(h)).
class BertBlock {
 public:
  BertBlock(ParameterSet& parameters, const BertSettings& s, int64_t layer)
      : BertBlock(parameters, s, layer, "bert.encoder.layer." + std::to_string(layer)) {}

  /// x [T, H] -> [T, H], both of this rank's part of T.
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const {
    const auto drop = [&](const at::Tensor& y, nn::DropoutSite site) {
      return nn::dropout(y, dropout_, layer_, site, context);
    };
    const at::Tensor h = norm_1_.forward(
        x + drop(attention_.forward(x, nullptr, context), nn::DropoutSite::AttentionOut));
    return norm_2_.forward(
        h + drop(feed_forward_.forward(h, context), nn::DropoutSite::FeedForward));
  }

 private:
  BertBlock(ParameterSet& parameters, const BertSettings& s, int64_t layer,
            const std::string& name)
      : attention_(parameters, name + ".attention", s.hidden_size / s.num_attention_heads,
                   layer,
                   {.bias = nn::Bias::Yes,
                    .out_bias = nn::Bias::Yes,
                    .dropout = s.attention_dropout}),
        norm_1_(parameters, name + ".attention.output.LayerNorm", s.layer_norm_eps),
        feed_forward_(parameters, name, bert_gelu(s)),
        norm_2_(parameters, name + ".output.LayerNorm", s.layer_norm_eps),
        layer_(layer),
        dropout_(s.hidden_dropout) {}

  nn::Attention attention_;
  nn::LayerNorm norm_1_;
  nn::GeluFeedForward feed_forward_;
  nn::LayerNorm norm_2_;
  int64_t layer_;
  double dropout_;
};

/// Whether a sequence's second text follows its first: tanh(dense(first token)), two
/// logits.
class BertNextSentence {
 public:
  explicit BertNextSentence(ParameterSet& parameters)
      : pooler_(parameters, "bert.pooler.dense", nn::Bias::Yes),
        relation_(parameters, "cls.seq_relationship", nn::Bias::Yes) {}

  /// x [T, H] -> [B, 2]. A copy of the first rows: not all of x is kept for them.
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const {
    const at::Tensor first =
        x.view({context.batch.rows, context.batch.seq, -1}).select(1, 0).clone();
    return relation_.forward(at::tanh(pooler_.forward(first, context)), context);
  }

 private:
  nn::Linear pooler_, relation_;
};

/// What is between the last block and the losses, all inside of one split region: each
/// rank has every masked token, and of what follows the gradient of its part of the
/// vocabulary.
class BertHead {
 public:
  BertHead(ParameterSet& parameters, const BertSettings& s)
      : dense_(parameters, "cls.predictions.transform.dense", nn::Bias::Yes),
        norm_(parameters, "cls.predictions.transform.LayerNorm", s.layer_norm_eps),
        gelu_(bert_gelu(s)),
        bias_(parameters.take("cls.predictions.bias")) {
    if (s.next_sentence) next_sentence_.emplace(parameters);
  }

  /// x [T, H] of this rank's part of T -> [R, H], and [B, 2] with that head.
  nn::Tensors forward(const at::Tensor& x, const nn::ForwardContext& context) const {
    const at::Tensor all = context.enter(x).x;
    const at::Tensor masked =
        at::index_select(all, 0, nn::rows_with_target(context.batch));
    const at::Tensor inner = dense_.forward(masked, context);
    nn::Tensors out = {norm_.forward(ops::gelu(inner, gelu_, context.fused))};
    if (next_sentence_) out.push_back(next_sentence_->forward(all, context));
    return out;
  }

  at::Tensor loss(const nn::Tensors& hidden, const ParameterPtr& words,
                  const nn::ForwardContext& context) const {
    const at::Tensor targets = at::index_select(context.batch.targets.at(0), 0,
                                                nn::rows_with_target(context.batch));
    const at::Tensor loss =
        nn::loss_head_inside(hidden[0], targets, words, bias_, 0, context);
    return next_sentence_ ? loss + nn::loss_inside(hidden.at(1), 1, context) : loss;
  }

  const ParameterPtr& bias() const { return bias_; }

 private:
  nn::Linear dense_;
  nn::LayerNorm norm_;
  nn::Gelu gelu_;
  ParameterPtr bias_;
  std::optional<BertNextSentence> next_sentence_;
};

class Bert : public Model {
 public:
  Bert(const ModelConfig& config, const StageSpec& stage, ParameterSet& parameters)
      : settings_(bert_settings(config)),
        max_positions_(config.max_position_embeddings),
        first_layer_(stage.first_layer) {
    if (stage.embedding || stage.head) {
      words_.emplace(parameters, "bert.embeddings.word_embeddings");
    }
    if (stage.embedding) embedding_.emplace(parameters, settings_);
    for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
      blocks_.emplace_back(parameters, settings_, i);
    }
    if (stage.head) head_.emplace(parameters, settings_);
  }

  nn::Tensors embed(const nn::ForwardContext& context) const override {
    return {embedding_->forward(*words_, context)};
  }
  nn::Tensors block(int64_t layer, const nn::Tensors& x,
                    const nn::ForwardContext& context) const override {
    return {blocks_[static_cast<size_t>(layer - first_layer_)].forward(x[0], context)};
  }
  nn::Tensors head(const nn::Tensors& x,
                   const nn::ForwardContext& context) const override {
    return head_->forward(x[0], context);
  }

  at::Tensor loss(const nn::Tensors& hidden,
                  const nn::ForwardContext& context) const override {
    return head_->loss(hidden, words_->weight(), context);
  }

  at::Tensor target_rows(const nn::Tensors& hidden,
                         const nn::ForwardContext& /*context*/) const override {
    return hidden[0];
  }

  at::Tensor logits(const at::Tensor& hidden) const override {
    return ops::linear_product(hidden, words_->weight()->weight(),
                               head_->bias()->weight());
  }

  nn::KvCache make_cache(int64_t /*batch*/, int64_t /*capacity*/,
                         const at::TensorOptions& /*options*/) const override {
    throw InputError("model",
                     "a BERT sees the text on both sides of a token: it cannot continue "
                     "one");
  }

  void prepare(int64_t positions, at::Device /*device*/) override {
    LH_CHECK(positions <= max_positions_, "model",
             "{} positions asked for, the model has {} (max_position_embeddings)",
             positions, max_positions_);
  }

 private:
  BertSettings settings_;
  int64_t max_positions_;
  int64_t first_layer_;
  std::optional<nn::Embedding> words_;
  std::optional<BertEmbedding> embedding_;
  std::vector<BertBlock> blocks_;
  std::optional<BertHead> head_;
};

}  // namespace

std::unique_ptr<Model> make_bert(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters) {
  return std::make_unique<Bert>(config, stage, parameters);
}

}  // namespace longhaul::models
