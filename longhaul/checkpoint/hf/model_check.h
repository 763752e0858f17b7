#pragma once

#include <string>
#include <vector>

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/families/model_config.h"

namespace longhaul::checkpoint {

// The one judgement of a model's files: what `inspect` lists, `export` refuses to copy,
// and `train`, `eval` and `generate` refuse to begin with.

/// What is wrong with its tensors, one line each: those that are missing, surplus,
/// misshapen or no floats. Reads no weight.
std::vector<std::string> tensor_problems(const SharedSource& source,
                                         const ModelDescription& model);

/// What is damaged beside the weights of a directory, one line each: side files, a
/// tokenizer's among them. A tokenizer that is whole and of a kind that is not read here
/// is no problem of the files; whoever loads it refuses it.
std::vector<std::string> problems_beside(const fs::path& dir);

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

/// InputError, the same on all ranks, that lists both. Collective.
void check_model_files(const SharedSource& source, const ModelDescription& model,
                       comm::Communicator& group);

/// The same, and check_tied_head: for those who compute with the model. Collective.
void check_model(const SharedSource& source, const ModelConfig& config,
                 comm::Communicator& group);

}  // namespace longhaul::checkpoint
