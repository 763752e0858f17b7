#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace longhaul {

/// The properties that a model gives to the scores of an attention, which are the
/// products of queries and keys before the softmax.
struct AttentionScores {
  /// The factor of the scores, finite and above 0; absent: one over the square root of
  /// the head dim.
  std::optional<double> scale = {};
  /// The most positions that a token sees, the last of which is its own; absent: all.
  std::optional<int64_t> window = {};
  /// If above 0, scaled scores s become score_cap * tanh(s / score_cap) before the
  /// softmax.
  double score_cap = 0.0;
  bool operator==(const AttentionScores&) const = default;

  /// Returns the factor for heads of `head_dim` features, in the precision T of the
  /// caller's arithmetic.
  template <typename T>
  T scale_of(int64_t head_dim) const {
    return scale ? static_cast<T>(*scale) : T{1} / std::sqrt(static_cast<T>(head_dim));
  }
  /// Returns the window, or a number above the length of any sequence.
  int64_t reach() const { return window.value_or(int64_t{1} << 62); }
};

}  // namespace longhaul
