#pragma once

#include "longhaul/families/description/description.h"
#include "longhaul/imports/llama_merge.h"

namespace longhaul::imports {

/// Makes the whole stored tensors of a model from the tensors of every rank,
/// ranks[pp][tp], by the shapes of the model's description. Tensors that are smaller
/// along one dim are concatenated in the order of ranks, as neuronx-distributed's
/// parallel layers hold them. Whole tensors are copies, which are compared with the
/// first. Tables of older versions and a tied head are skipped. Throws InputError that
/// names what is missing, unknown or of another shape, and fused matrices of which a
/// rank's part is in several pieces. The caller checks that all tensors are there.
std::map<std::string, Mosaic> merge_by_shape(
    const ForeignFiles& files, const std::vector<std::vector<NamedTensors>>& ranks,
    const ModelDescription& model, const MergeOptions& options, MergeReport& report);

}  // namespace longhaul::imports
