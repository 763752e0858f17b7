#pragma once

#include <memory>

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/families/description/description.h"

namespace longhaul::checkpoint {

// Most families have the same tensors in Hugging Face's files as in this program. Other
// families store them in another form (StoredForm: fused, transposed). Files of other
// versions of transformers have other names, or the form
// ParameterDescription::other_form. These functions present a source in either form,
// whichever form its files have; they return the source itself where nothing has to
// change.

using SharedSource = std::shared_ptr<const WeightsSource>;

/// Returns the source with the names and shapes of the model's parameters.
SharedSource as_parameters(const SharedSource& source, const ModelDescription& model);

/// Returns the source with the names and shapes of a Hugging Face directory, under
/// today's names and in the form in which files are written.
SharedSource as_hugging_face(const SharedSource& source, const ModelDescription& model);

/// Returns a checkpoint of an adapter with the names and shapes of the adapter's files,
/// which hold the parts of all experts of a layer together. `model` has the adapter.
SharedSource as_adapter_files(const SharedSource& source, const ModelDescription& model);

/// Throws InputError, with the names of the source's files, unless the source holds the
/// model's parameters and nothing else.
void check_weights(const SharedSource& source, const ModelDescription& model);

}  // namespace longhaul::checkpoint
