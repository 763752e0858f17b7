#pragma once

#include "longhaul/families/description.h"
#include "longhaul/imports/llama_merge.h"

namespace longhaul::imports {

/// The whole stored tensors of a model from those of every rank, ranks[pp][tp], by the
/// shapes that its description has: what is smaller along one dim is one rank's part
/// after the other, as neuronx-distributed's parallel layers hold it, and what is whole
/// is a copy, compared with the first. Tables of older versions and a tied head are
/// passed over. InputError names what is missing, unknown or of another shape, and fused
/// matrices whose ranks' parts do not lie in one piece; completeness of the list is the
/// caller's to check.
std::map<std::string, Mosaic> merge_by_shape(
    const ForeignFiles& files, const std::vector<std::vector<NamedTensors>>& ranks,
    const ModelDescription& model, const MergeOptions& options, MergeReport& report);

}  // namespace longhaul::imports
