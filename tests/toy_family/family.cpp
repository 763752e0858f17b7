#include <fmt/format.h>

#include "longhaul/families/limits.h"
#include "longhaul/families/unit_maker.h"
#include "tests/toy_family/toy.h"

namespace longhaul::toy {
namespace {

using families::ConfigFields;

UnitDescription block(int64_t layer, int64_t width) {
  families::UnitMaker unit(UnitKind::Block, layer, 0.05);
  const std::string name = fmt::format("blocks.{}.", layer);
  const auto hidden = unit.input(width);
  unit.input(width);
  const auto x = unit.norm(name + "norm.weight", hidden);
  unit.enter();
  const auto gate =
      unit.matrix(name + "gate_proj.weight", 2 * width, x, {ShardUnit::Elements, 0});
  unit.of_expert();
  const auto up =
      unit.matrix(name + "up_proj.weight", 2 * width, x, {ShardUnit::Elements, 0});
  unit.matrix(name + "down_proj.weight", width, unit.gated_product(gate, up),
              {ShardUnit::Elements, 1});
  unit.leave();
  return unit.take();
}

class ToyFamily : public families::Family {
 public:
  std::string model_type() const override { return "toy"; }
  std::string about() const override { return "a test's"; }
  std::vector<std::string> architectures() const override { return {"ToyForCausalLM"}; }
  std::vector<std::string> fields() const override { return {"width", "depth"}; }

  void read(const ConfigFields& fields, ModelConfig& config) const override {
    const int64_t width = fields.required_integer("width", 1, families::kMaxWidth);
    const int64_t depth = fields.required_integer("depth", 1, families::kMaxLayers);
    config.max_position_embeddings = families::kMaxPositions;
    ModelDescription& model = config.description;
    model.passed = {{"hidden", width}, {"words", width}};
    model.losses = {{kNextToken}, {"size", LossTerm::Over::Positions}};
    model.query_heads = model.key_heads = 2;  // of none: as many tp ranks as may be
    families::UnitMaker embedding(UnitKind::Embedding, 0, 0.05);
    embedding.table("words.weight", config.vocab_size, width);
    embedding.leave();
    model.units.push_back(embedding.take());
    for (int64_t i = 0; i < depth; ++i) {
      model.units.push_back(block(i, width));
    }
    families::UnitMaker head(UnitKind::Head, 0, 0.05);
    const auto hidden = head.input(width);
    const auto x = head.norm("norm.weight", head.sum(hidden, head.input(width)));
    head.enter();
    head.loss_head("head.weight", config.vocab_size, x);
    model.units.push_back(head.take());
  }

  std::vector<families::Field> settings(const ModelConfig& config) const override {
    return {{"width", fmt::format("{}", config.description.features()), true}};
  }
};

}  // namespace

const families::Family& toy_family() {
  static const ToyFamily family;
  return family;
}

}  // namespace longhaul::toy
