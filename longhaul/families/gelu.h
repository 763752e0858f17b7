#pragma once

#include "longhaul/families/config_fields.h"

namespace longhaul::families {

/// "hidden_act" is GELU by its tanh form (gelu_new, gelu_fast, gelu_pytorch_tanh), not
/// the exact one (gelu, which it is where it is absent). InputError for anything else.
bool read_tanh_gelu(const ConfigFields& fields);

}  // namespace longhaul::families
