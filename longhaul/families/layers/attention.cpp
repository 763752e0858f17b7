#include "longhaul/families/layers/attention.h"

namespace longhaul::families {
namespace {

using format::ShardUnit;

format::ShardSplit split_by(ShardUnit heads, const Attention& attention, int dim = 0) {
  return {heads, dim, heads_of(attention)};
}

Feature add_head_norm(UnitMaker& unit, const Norm& norm, const Feature& x,
                      ShardUnit heads, const Attention& attention) {
  const std::string name = norm.name + ".weight";
  const Feature y = attention.norms_over_all_heads
                        ? unit.wide_norm(name, x, split_by(heads, attention))
                        : unit.head_norm(name, x, attention.head_dim, norm.form);
  if (attention.extras_last) unit.stands_last();
  return y;
}

/// Adds the projection of queries, keys or values.
Feature add_heads(UnitMaker& unit, const Linear& projection, const Feature& x,
                  ShardUnit heads, const Attention& attention) {
  const Feature y = add_linear(unit, projection, x, split_by(heads, attention));
  if (projection.bias && attention.extras_last) unit.stands_last();
  return y;
}

}  // namespace

format::Heads heads_of(const Attention& attention) {
  return {attention.query.out / attention.head_dim,
          attention.key.out / attention.head_dim};
}

Feature add_layer(UnitMaker& unit, const Attention& attention, const Feature& x) {
  unit.sees(attention.reach(), attention.causal);
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
  return unit.leave(add_linear(unit, attention.out, seen,
                               split_by(ShardUnit::QueryHeads, attention, /*dim=*/1)));
}

}  // namespace longhaul::families
