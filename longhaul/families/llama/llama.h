#pragma once

#include "longhaul/families/decoder.h"

namespace longhaul::families {

/// Llama 1 to 3.1 (Touvron et al. 2023; Grattafiori et al. 2024).
const Family& llama_family();

}  // namespace longhaul::families
