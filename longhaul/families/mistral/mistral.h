#pragma once

#include "longhaul/families/decoder.h"

namespace longhaul::families {

/// Mistral 7B (Jiang et al. 2023, arXiv 2310.06825): attention within a window.
const Family& mistral_family();

}  // namespace longhaul::families
