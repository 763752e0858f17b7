#pragma once

#include <memory>

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/families/description.h"

namespace longhaul::checkpoint {

// Most families' parameters are in Hugging Face's files as they are here. Of the others
// (StoredForm: fused, transposed) a source can be looked at in either way, whatever holds
// it. Both return the source itself where there is nothing to do.

using SharedSource = std::shared_ptr<const WeightsSource>;

/// With the names and shapes of the model's parameters.
SharedSource as_parameters(const SharedSource& source, const ModelDescription& model);

/// With the names and shapes of a Hugging Face directory, under the names that are usual
/// now.
SharedSource as_hugging_face(const SharedSource& source, const ModelDescription& model);

/// InputError, in the names of its files, unless a source holds the model's parameters
/// and nothing else.
void check_weights(const SharedSource& source, const ModelDescription& model);

}  // namespace longhaul::checkpoint
