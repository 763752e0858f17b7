#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/families/family.h"

namespace longhaul::families {

/// Returns the row of the embedding that pad_token_id names, for a family whose class in
/// transformers passes it to torch's Embedding as padding_idx. A negative number counts
/// from the end, null names no row, and `absent` is what an absent field stands for. A
/// number that names no row becomes `config`'s training_problem. Throws InputError for
/// what is no number.
std::optional<int64_t> read_padding_row(const ConfigFields& fields, ModelConfig& config,
                                        std::optional<int64_t> absent = {});

}  // namespace longhaul::families
