#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// What examples have targets for: kMaskedToken, by position, and kNextSentence, by
/// sequence.
std::vector<std::string> example_losses();

/// Packed examples (example_store.h) for a model with masked-token and next-sentence
/// heads: losses() are example_losses(), document_end is where a row's padding begins.
/// InputError when the rows have another length than `seq_len`, and for a damaged
/// directory.
std::unique_ptr<TokenSource> example_source(const fs::path& path, int64_t seq_len,
                                            bool verify = true);

/// InputError, with both, when rows of `found` tokens are not what data.seq_len asks for.
void check_example_length(const fs::path& path, int64_t found, int64_t seq_len);

}  // namespace longhaul::data
