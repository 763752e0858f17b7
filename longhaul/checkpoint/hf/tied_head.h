#pragma once

#include <optional>
#include <string>

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/families/model_config.h"

namespace longhaul::checkpoint {

/// Whether the files of a model with tied embeddings hold an output projection too that
/// is another than the embedding: where, for people, or nothing. transformers compares
/// them and does not tie such a model. Reads both, a few MiB at a time, up to the first
/// difference; reads nothing where the config does not tie. InputError where a value that
/// is read is not finite (finite.h).
std::optional<std::string> tied_head_difference(const WeightsSource& source,
                                                const ModelConfig& config);

/// InputError where there is a difference: this program would tie what transformers
/// does not.
void check_tied_head(const WeightsSource& source, const ModelConfig& config);

}  // namespace longhaul::checkpoint
