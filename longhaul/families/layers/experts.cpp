#include "longhaul/families/layers/experts.h"

namespace longhaul::families {

// Every rank of a tp group routes all tokens. Each rank sees a part of the experts'
// features and so holds a part of the router's gradient.
Feature add_layer(UnitMaker& unit, const Experts& layer, const Feature& x) {
  using format::ShardUnit;
  unit.enter();
  const Feature logits = add_linear(unit, layer.router, x, {ShardUnit::None, 0});
  std::vector<std::vector<std::string>> first, last;
  for (const FeedForward& expert : layer.experts) {
    first.push_back({expert.gate->name + ".weight", expert.up.name + ".weight"});
    last.push_back({expert.down.name + ".weight"});
  }
  const FeedForward& one = layer.experts.front();
  const Feature rows = unit.routed(x, logits, layer.top_k, layer.normalised);
  const auto inside = [&](const char* name) {
    return layer.fused.empty() ? std::string() : layer.fused + name;
  };
  const auto inner = unit.expert_matrices(first, inside(".gate_up_proj"), one.up.out,
                                          rows, {ShardUnit::Elements, 0});
  const Feature product = unit.gated_product(inner.at(0), inner.at(1), /*weighed=*/true);
  const auto out = unit.expert_matrices(last, inside(".down_proj"), one.down.out, product,
                                        {ShardUnit::Elements, 1});
  const Feature y = unit.gathered(out.at(0));
  if (layer.shared) add_inside(unit, *layer.shared, x);
  return unit.leave(y);
}

}  // namespace longhaul::families
