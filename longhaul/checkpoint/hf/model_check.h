#pragma once

#include <string>
#include <vector>

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/families/model_config.h"

namespace longhaul::checkpoint {

// Judges a model's files in one place: `inspect` lists the problems, `export` refuses to
// copy such files, and `train`, `eval` and `generate` refuse to begin with them.

/// Returns the problems of the tensors, one line each: tensors that are missing, surplus,
/// misshapen or no floats. Reads no weight.
std::vector<std::string> tensor_problems(const SharedSource& source,
                                         const ModelDescription& model);

/// Returns the problems of the files beside the weights, one line each: damaged side
/// files, including a tokenizer's files. A whole tokenizer of a kind that this program
/// does not read is no problem here; whoever loads the tokenizer refuses it.
std::vector<std::string> problems_beside(const fs::path& dir);

/// Returns a text that says where an output projection in the files differs from the
/// embedding, for a model with tied embeddings. Returns nothing where there is no
/// difference. transformers makes the same comparison and does not tie a model whose
/// tensors differ. Reads both tensors, a few MiB at a time, up to the first difference;
/// reads nothing where the config does not tie. Throws InputError where a value is not
/// finite (finite_values.h).
std::optional<std::string> tied_head_difference(const WeightsSource& source,
                                                const ModelConfig& config);

/// Throws InputError where the model ties its output projection and the files hold one
/// that differs from the embedding: this program would tie it, and transformers would
/// not.
void check_tied_head(const WeightsSource& source, const ModelConfig& config);

/// Throws InputError, the same on all ranks, that lists the problems of tensors and side
/// files. Collective.
void check_model_files(const SharedSource& source, const ModelDescription& model,
                       comm::Communicator& group);

/// Throws as check_model_files and check_tied_head do; for commands that compute with the
/// model. Collective.
void check_model(const SharedSource& source, const ModelConfig& config,
                 comm::Communicator& group);

}  // namespace longhaul::checkpoint
