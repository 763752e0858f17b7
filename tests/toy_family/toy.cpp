// A family that the program does not know; this file replaces the program's registries.
// The model has embeddings and gated feed-forwards, so that each token is computed by
// itself. Blocks also hand on the embeddings, which the head adds. The gates are
// parameters of experts, and the size of hidden states is a term of the loss.
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "longhaul/families/family.h"
#include "longhaul/families/plausible_sizes.h"
#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"
#include "longhaul/nn/auxiliary_loss.h"

namespace longhaul {
namespace {
using namespace families;

void read_toy(const ConfigFields& fields, ModelConfig& config) {
  Network& network = config.network;
  const int64_t width = fields.required_integer("width", 1, kMaxWidth);
  network.width = width;
  network.query_heads = network.key_heads =
      2;  // no attention: any number of tp ranks up to 2
  network.stddev = 0.05;
  network.max_positions = kMaxPositions;
  network.embedding.tokens = {"words", config.vocab_size};
  for (int64_t i = 0; i < fields.required_integer("depth", 1, kMaxLayers); ++i) {
    const std::string name = fmt::format("blocks.{}.", i);
    network.blocks.push_back(
        {{{{.before = Norm{Norm::Kind::Rms, name + "norm", 1e-5},
            .core = FeedForward{.gate = Linear{name + "gate_proj", 2 * width},
                                .up = {name + "up_proj", 2 * width},
                                .down = {name + "down_proj", width}}}}}});
  }
  network.head = LanguageHead{{Norm::Kind::Rms, "norm", 1e-5}, "head"};
}

ModelDescription describe_toy(const Network& network) {
  ModelDescription model = families::describe(network);
  model.passed.push_back({"words", network.width});
  model.losses.push_back({"size", LossTerm::Over::Positions});
  for (UnitDescription& unit : model.units) {
    if (unit.kind == UnitKind::Embedding) continue;
    auto& tensors = unit.forward.tensors;
    tensors.insert(tensors.begin() + 1, {.width = network.width, .outside = true});
    ++unit.forward.inputs;
    if (unit.kind == UnitKind::Block) unit.parameters.at(1).expert = ExpertNumber{0, 1};
  }
  return model;
}

class Toy : public models::Model {
 public:
  using Model::Model;
  nn::Tensors embed(const nn::ForwardContext& context) const override {
    const at::Tensor words = Model::embed(context)[0];
    return {words, words};
  }
  nn::Tensors block(int64_t layer, const nn::Tensors& x,
                    const nn::ForwardContext& context) const override {
    const at::Tensor h = Model::block(layer, x, context)[0];
    const at::Tensor size = h.square().mean(1).sum() * 0.02;
    return {nn::with_auxiliary_loss(h, size, 1, context), x[1]};
  }
  nn::Tensors head(const nn::Tensors& x,
                   const nn::ForwardContext& context) const override {
    return Model::head({x[0] + x[1]}, context);
  }
};

}  // namespace
const std::vector<Family>& families::all_families() {
  static const std::vector<Family> all = {{"toy", "a test's", "ToyForCausalLM",
                                           "width depth", "", read_toy, "",
                                           describe_toy}};
  return all;
}
const families::Family* families::find_family(std::string_view model_type) {
  return model_type == "toy" ? &all_families().front() : nullptr;
}
std::unique_ptr<models::Model> models::make_model(const ModelConfig& config,
                                                  const StageSpec& stage,
                                                  tensor::ParameterSet& parameters) {
  return std::make_unique<Toy>(config, stage, parameters);
}
std::unique_ptr<models::SourceModel> models::make_source_model(const ModelConfig&,
                                                               const SourceFiles&,
                                                               at::ScalarType) {
  return nullptr;
}

}  // namespace longhaul
