#pragma once

#include "longhaul/families/config_fields.h"

namespace longhaul::families {

/// Returns whether "hidden_act" names GELU's tanh form (gelu_new, gelu_fast,
/// gelu_pytorch_tanh) and not the exact form (gelu, or an absent field). Throws
/// InputError for anything else.
bool read_tanh_gelu(const ConfigFields& fields);

}  // namespace longhaul::families
