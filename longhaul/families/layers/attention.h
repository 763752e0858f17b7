#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/families/layers/attention_scores.h"
#include "longhaul/families/layers/linear.h"
#include "longhaul/families/layers/norm.h"
#include "longhaul/families/layers/rotation.h"

namespace longhaul::families {

/// Grouped-query self-attention.
struct Attention : AttentionScores {
  Linear query, key, value, out;
  int64_t head_dim = 0;
  std::optional<Rotation> rotation = {};
  /// RMS norms of queries and of keys before the rotation; both or none are there. Both
  /// norm each head, or both norm all heads together (ops/wide_norm.h).
  std::optional<Norm> query_norm = {}, key_norm = {};
  bool norms_over_all_heads = false;
  bool causal = true;    ///< false if a token also sees the tokens behind it
  double dropout = 0.0;  ///< dropout of the probabilities
  /// In the order of the block's parameters, the biases of queries, keys and values and
  /// the norms of heads come last.
  bool extras_last = false;
  bool operator==(const Attention&) const = default;
};

/// Returns the numbers of query heads and of key heads.
format::Heads heads_of(const Attention& attention);
/// Adds the attention over x to the unit's description.
Feature add_layer(UnitMaker& unit, const Attention& attention, const Feature& x);

}  // namespace longhaul::families
