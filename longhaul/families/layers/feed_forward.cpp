#include "longhaul/families/layers/feed_forward.h"

namespace longhaul::families {

Feature add_inside(UnitMaker& unit, const FeedForward& layer, const Feature& x) {
  constexpr format::ShardSplit kRows = {format::ShardUnit::Elements, 0};
  Feature inner;
  if (layer.gate) {
    const Feature gate = add_linear(unit, *layer.gate, x, kRows);
    inner = unit.gated_product(gate, add_linear(unit, layer.up, x, kRows));
  } else {
    inner = unit.gelu(add_linear(unit, layer.up, x, kRows));
  }
  return add_linear(unit, layer.down, inner, {format::ShardUnit::Elements, 1});
}

Feature add_layer(UnitMaker& unit, const FeedForward& layer, const Feature& x) {
  unit.enter();
  return unit.leave(add_inside(unit, layer, x));
}

}  // namespace longhaul::families
