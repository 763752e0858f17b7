#include "longhaul/families/layers/attention.h"

namespace longhaul::families {
namespace {

using format::ShardUnit;

Feature add_head_norm(UnitMaker& unit, const Norm& norm, const Feature& x,
                      ShardUnit heads, const Attention& attention) {
  const std::string name = norm.name + ".weight";
  const Feature y = attention.norms_over_all_heads
                        ? unit.wide_norm(name, x, {heads, 0})
                        : unit.head_norm(name, x, attention.head_dim, norm.form);
  if (attention.extras_last) unit.stands_last();
  return y;
}

/// Adds the projection of queries, keys or values.
Feature add_heads(UnitMaker& unit, const Linear& projection, const Feature& x,
                  ShardUnit heads, const Attention& attention) {
  const Feature y = add_linear(unit, projection, x, {heads, 0});
  if (projection.bias && attention.extras_last) unit.stands_last();
  return y;
}

}  // namespace

Feature add_layer(UnitMaker& unit, const Attention& attention, const Feature& x) {
  if (!attention.causal) unit.both_ways();
  if (attention.window) unit.window(*attention.window);
  unit.enter();
  Feature q = add_heads(unit, attention.query, x, ShardUnit::QueryHeads, attention);
  Feature k = add_heads(unit, attention.key, x, ShardUnit::KeyHeads, attention);
  const Feature v = add_heads(unit, attention.value, x, ShardUnit::KeyHeads, attention);
  if (attention.query_norm) {
    q = add_head_norm(unit, *attention.query_norm, q, ShardUnit::QueryHeads, attention);
    k = add_head_norm(unit, *attention.key_norm, k, ShardUnit::KeyHeads, attention);
  }
  if (attention.rotation) {
    q = unit.rope(q, attention.rotation->features);
    k = unit.rope(k, attention.rotation->features);
  }
  const Feature seen = unit.attention(q, k, v, attention.head_dim);
  return unit.leave(add_linear(unit, attention.out, seen, {ShardUnit::QueryHeads, 1}));
}

}  // namespace longhaul::families
