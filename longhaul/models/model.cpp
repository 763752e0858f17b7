#include "longhaul/models/model.h"

#include "longhaul/base/error.h"

namespace longhaul::models {
namespace {

/// Returns true if the stage has the table of tokens.
bool has_tokens(const families::Network& network, const StageSpec& stage) {
  const bool tied = families::by_kind(
      network.head, [](const families::LanguageHead& head) { return head.tied; },
      [](const families::BertHead&) { return true; });
  return stage.embedding || (stage.head && tied);
}

}  // namespace

Model::Model(const ModelConfig& config, const StageSpec& stage,
             tensor::ParameterSet& parameters)
    : stage_(stage),
      max_positions_(config.network.max_positions),
      max_positions_key_(config.network.max_positions_key),
      causal_(config.description.is_causal()),
      num_losses_(config.description.losses.size()),
      units_(parameters.units()) {
  const families::Network& network = config.network;
  if (has_tokens(network, stage)) {
    tokens_.emplace(parameters, network.embedding.tokens.name);
  }
  if (stage.embedding) embedding_.emplace(parameters, network.embedding);
  for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
    blocks_.emplace_back(parameters, network.blocks.at(static_cast<size_t>(i)), i);
  }
  if (!stage.head) return;
  const tensor::ParameterPtr tokens = tokens_ ? tokens_->weight() : nullptr;
  head_ =
      std::visit([&](const auto& head) { return make_head(parameters, head, tokens); },
                 network.head);
}

std::vector<tensor::ParameterPtr> Model::parameters() const {
  std::vector<tensor::ParameterPtr> all;
  for (const tensor::ParameterUnit& unit : units_) {
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return all;
}

nn::Tensors Model::embed(const nn::ForwardContext& context) const {
  LH_ASSERT(embedding_, "this stage has no embedding");
  return {embedding_->forward(*tokens_, context)};
}

nn::Tensors Model::block(int64_t layer, const nn::Tensors& x,
                         const nn::ForwardContext& context) const {
  return {
      blocks_.at(static_cast<size_t>(layer - stage_.first_layer)).forward(x[0], context)};
}

nn::Tensors Model::head(const nn::Tensors& x, const nn::ForwardContext& context) const {
  return own_head().forward(x, context);
}

nn::Tensors Model::hidden(const nn::Tensors& input,
                          const nn::ForwardContext& context) const {
  nn::Tensors x = stage_.embedding ? embed(context) : input;
  for (int64_t layer = stage_.first_layer; layer < stage_.end_layer; ++layer) {
    x = block(layer, x, context);
  }
  return stage_.head ? head(x, context) : x;
}

at::Tensor Model::loss(const nn::Tensors& hidden,
                       const nn::ForwardContext& context) const {
  return own_head().loss(hidden, context);
}

at::Tensor Model::target_rows(const nn::Tensors& hidden,
                              const nn::ForwardContext& context) const {
  return own_head().target_rows(hidden, context);
}

at::Tensor Model::logits(const at::Tensor& hidden) const {
  return own_head().logits(hidden);
}

nn::KvCache Model::make_cache(int64_t batch, int64_t capacity,
                              const at::TensorOptions& options) const {
  if (!causal_) {
    throw InputError("model",
                     "this model sees the text on both sides of a token, so it cannot "
                     "continue a text");
  }
  nn::KvCache cache;
  cache.first_layer = stage_.first_layer;
  for (const Block& block : blocks_) {
    cache.layers.push_back(block.make_cache(batch, capacity, options));
  }
  return cache;
}

void Model::prepare(int64_t positions, at::Device device) {
  LH_CHECK(positions <= max_positions_, "model",
           "{} positions are asked for, but the model has {} ({})", positions,
           max_positions_, max_positions_key_);
  nn::RopeTables tables(positions, device);
  for (Block& block : blocks_) block.prepare(tables);
}

const Head& Model::own_head() const {
  LH_ASSERT(head_, "this stage has no head");
  return *head_;
}

std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage) {
  tensor::ParameterSet parameters(config.description.stage(stage));
  std::unique_ptr<Model> model = make_model(config, stage, parameters);
  parameters.check_taken();
  return model;
}

std::unique_ptr<Model> build(const ModelConfig& config) {
  return build(config, config.description.whole());
}

}  // namespace longhaul::models
