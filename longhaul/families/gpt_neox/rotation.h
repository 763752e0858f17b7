#pragma once

#include "longhaul/families/config_fields.h"
#include "longhaul/families/rope.h"

namespace longhaul::families {

/// How GPT-NeoX rotates: the first features of each head.
struct NeoxRotation {
  RopeConfig rope;
  int64_t features = 0;
};

/// Reads the rotation from rotary_emb_base and rotary_pct, or from rope_theta and
/// partial_rotary_factor of rope_parameters (or of rope_scaling), as transformers 5
/// writes them. Throws InputError for a missing number, for places that disagree, and for
/// what read_rope refuses.
NeoxRotation read_neox_rotation(const ConfigFields& fields, int64_t head_dim);

}  // namespace longhaul::families
