#pragma once

#include <optional>
#include <string>

#include "longhaul/families/network.h"

// Layers with the usual names, for tests that describe their parameters themselves.

namespace longhaul::nn::testing {

/// Returns an attention with the projections NAME.q_proj, k_proj, v_proj and o_proj.
inline families::Attention attention_form(
    const std::string& name, int64_t head_dim,
    const std::optional<families::Rotation>& rotation = {}) {
  families::Attention form;
  form.query = {name + ".q_proj"};
  form.key = {name + ".k_proj"};
  form.value = {name + ".v_proj"};
  form.out = {name + ".o_proj"};
  form.head_dim = head_dim;
  form.rotation = rotation;
  return form;
}

/// Returns a gated feed-forward with the projections NAME.gate_proj, up_proj and
/// down_proj.
inline families::FeedForward gated_form(const std::string& name) {
  return {.gate = families::Linear{name + ".gate_proj"},
          .up = {name + ".up_proj"},
          .down = {name + ".down_proj"}};
}

inline families::Norm norm_form(const std::string& name) {
  return {families::Norm::Kind::Rms, name, 1e-5};
}

/// Returns a rotation of all `features` of a head, with the usual theta.
inline families::Rotation rotation_form(int64_t features) {
  families::Rotation rotation{{}, features};
  rotation.rope.theta = 10000.0;
  return rotation;
}

}  // namespace longhaul::nn::testing
