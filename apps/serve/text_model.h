#pragma once

#include <memory>
#include <string>

#include "apps/named_model.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {

// Questions that eval, generate and serve ask of a model of texts. `verb` is the
// area of the errors, all of which are the same on every rank.

/// Opens the tokenizer beside the weights' config; null if there is none.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_beside(const ModelConfig& config);

/// Opens the tokenizer at the path `named`, else the one beside the weights' config.
/// Throws InputError if there is none.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const std::string& verb,
                                                   const std::string& named,
                                                   const ModelConfig& config);

/// Throws InputError for a model that does not predict the next token.
void check_causal(const std::string& verb, const ModelConfig& config);

/// Throws ConfigError for ranks that split data, which all ranks have whole here. Ranks
/// that only share the experts are allowed; each of them computes all sequences.
void check_whole_data(const std::string& verb, const ParallelSection& parallel,
                      const NamedModel& model, int ranks);

}  // namespace longhaul::apps
