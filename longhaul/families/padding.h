#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/families/family.h"

namespace longhaul::families {

/// The row of the embedding that pad_token_id names, for a family whose class in
/// transformers gives it to torch's Embedding as padding_idx: a negative one counts from
/// the end, null names none. `absent`: what an absent field stands for. A number that
/// names no row becomes `config`'s training_problem; InputError for what is no number.
std::optional<int64_t> read_padding_row(const ConfigFields& fields, ModelConfig& config,
                                        std::optional<int64_t> absent = {});

}  // namespace longhaul::families
