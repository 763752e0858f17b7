#pragma once

#include <string>
#include <vector>

#include "longhaul/checkpoint/hf_forms.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/families/model_config.h"

namespace longhaul::checkpoint {

// The one judgement of a model's files: what `inspect` lists, `export` refuses to copy,
// and `train`, `eval` and `generate` refuse to begin with.

/// What is wrong, one line each: tensors that are missing, surplus, misshapen or no
/// floats, and side files that are damaged. Reads no weight.
std::vector<std::string> model_problems(const SharedSource& source,
                                        const ModelDescription& model);

/// Why this program cannot read the tokenizer of a directory, which may be whole: train,
/// eval and generate refuse it. Empty where it can, or there is none.
std::string unread_tokenizer(const fs::path& dir);

/// InputError, the same on all ranks, that lists model_problems. Collective.
void check_model_files(const SharedSource& source, const ModelDescription& model,
                       comm::Communicator& group);

/// The same, and check_tied_head: for those who compute with the model. Collective.
void check_model(const SharedSource& source, const ModelConfig& config,
                 comm::Communicator& group);

}  // namespace longhaul::checkpoint
