#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// Opens training or validation data: a token store (`longhaul data build`) or a
/// directory that Hugging Face datasets wrote with save_to_disk. With `document_mask`
/// positions restart and attention stops at document boundaries (token stores only).
/// InputError says what was found, what is accepted, and what to do.
std::unique_ptr<TokenSource> open_source(const fs::path& path, int64_t seq_len,
                                         bool document_mask = false);

/// `sequences` sequences of uniformly random tokens below `vocab_size`, a pure function
/// of seed and index.
std::unique_ptr<TokenSource> synthetic_source(int64_t sequences, int64_t seq_len,
                                              int64_t vocab_size, uint64_t seed);

/// InputError when the source holds an id that a model of `vocab_size` rows has not.
void check_vocabulary(const TokenSource& source, int64_t vocab_size);

/// InputError when both fingerprints are known and differ. `model_tokenizer` is
/// Tokenizer::fingerprint() of the model's own tokenizer, empty if it has none.
void check_tokenizer(const TokenSource& source, const std::string& model_tokenizer);

/// Several lines on the data at `path`: what it is, whether it is complete, counts,
/// tokenizer, special tokens, sources and a decoded sample. Nothing when `path` is
/// neither a token store nor a save_to_disk directory.
std::optional<std::string> describe_store(const fs::path& path);

/// Re-hashes every file of a token store; InputError names the first damaged file and
/// block. Returns the bytes checked.
uint64_t verify_store(const fs::path& path);

}  // namespace longhaul::data
