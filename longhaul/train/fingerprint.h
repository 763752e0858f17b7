#pragma once

#include <optional>
#include <string>

#include "longhaul/base/json.h"

namespace longhaul::train {

/// What decides the last bits of a result besides the program and the configuration:
/// instruction set, threads, LibTorch, layout. Equal fingerprints, equal bits.
Json numerics_fingerprint(const std::string& layout);

/// A line on what differs, or nothing.
std::optional<std::string> fingerprint_difference(const Json& saved, const Json& now);

}  // namespace longhaul::train
