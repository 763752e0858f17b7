#pragma once

#include <string>

#include "longhaul/format/gguf.h"

namespace longhaul::checkpoint {

/// Returns the text of the config.json that the keys and tensors of a GGUF file stand
/// for. Throws InputError that names `what` (the path), for an architecture that
/// describe_gguf does not write, and for a key that is missing or no number.
std::string config_of_gguf(const format::GgufHeader& header, const std::string& what);

/// Throws InputError for a key of the file's architecture that disagrees with `values`,
/// which describe_gguf gives for the config.json. Throws it as well for a key that this
/// program does not know, since such a key may change what the model computes.
void check_gguf_values(const format::GgufHeader& header, const format::GgufValues& values,
                       const std::string& what);

}  // namespace longhaul::checkpoint
