#include "longhaul/families/layers/experts.h"

namespace longhaul::families {
namespace {

UnitMaker::ExpertNames weights_of(UnitMaker::ExpertNames names) {
  for (auto& expert : names) {
    for (std::string& name : expert) name += ".weight";
  }
  return names;
}

}  // namespace

// Every rank of a tp group routes all tokens. Each rank sees a part of the experts'
// features and so holds a part of the router's gradient.
Feature add_layer(UnitMaker& unit, const Experts& layer, const Feature& x) {
  using format::ShardUnit;
  unit.enter();
  const Feature logits = add_linear(unit, layer.router, x, {ShardUnit::None, 0});
  UnitMaker::ExpertNames first, last;
  for (const FeedForward& expert : layer.experts) {
    first.push_back({expert.gate->name, expert.up.name});
    last.push_back({expert.down.name});
  }
  const FeedForward& one = layer.experts.front();
  const auto fused = [&](const std::string& name) {
    return layer.fused.empty() ? std::string() : name;
  };
  // PEFT wraps a module once for each of its parameters, and down_proj comes last.
  const bool both = one.gate->adapter && one.down.adapter;
  const Feature rows = unit.routed(x, logits, layer.top_k, layer.normalised);
  constexpr format::ShardSplit kRows = {ShardUnit::Elements, 0},
                               kColumns = {ShardUnit::Elements, 1};
  const auto inner = unit.expert_matrices(weights_of(first), fused(gate_up_of(layer)),
                                          one.up.out, rows, kRows);
  if (one.gate->adapter) {
    unit.expert_low_rank(first, layer.fused + (both ? ".base_layer" : ""),
                         *one.gate->adapter, one.up.out, rows, kRows);
  }
  const Feature product = unit.gated_product(inner.at(0), inner.at(1), /*weighed=*/true);
  const auto out = unit.expert_matrices(weights_of(last), fused(down_of(layer)),
                                        one.down.out, product, kColumns);
  if (one.down.adapter) {
    unit.expert_low_rank(last, layer.fused, *one.down.adapter, one.down.out, product,
                         kColumns);
  }
  const Feature y = unit.gathered(out.at(0));
  if (layer.shared) add_inside(unit, *layer.shared, x);
  return unit.leave(y);
}

}  // namespace longhaul::families
