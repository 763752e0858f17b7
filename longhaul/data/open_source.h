#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// Opens training or validation data: a token store (`longhaul data build`), packed
/// examples of BERT (bert/example_store.h) or a directory that Hugging Face datasets
/// wrote with save_to_disk. With `document_mask`
/// positions restart and attention stops at document boundaries (token stores only).
/// With `verify` each block of a token store is compared with its hash when it is first
/// read; a save_to_disk directory has none. `field` is the column of the ids of a
/// save_to_disk directory; the other kinds have no fields and refuse another one.
/// InputError says what was found, what is accepted, and what to do.
std::unique_ptr<TokenSource> open_source(const fs::path& path, int64_t seq_len,
                                         bool document_mask = false, bool verify = true,
                                         const std::string& field = kIdsField);

/// InputError where `field` is another than kIdsField, since `what` has no fields.
void refuse_field(const fs::path& path, const std::string& field, const char* what);

/// Shell patterns replaced by what they match (input/path_pattern.h). InputError for one
/// that matches nothing, and for names that are not UTF-8.
std::vector<fs::path> expand_paths(const std::vector<fs::path>& entries);

/// Sources of one length one after another, as one: at least one. Its fingerprint is that
/// of the list.
std::unique_ptr<TokenSource> concatenated_source(
    std::vector<std::unique_ptr<TokenSource>> parts);

/// `sequences` sequences of uniformly random tokens below `vocab_size`, a pure function
/// of seed and index.
std::unique_ptr<TokenSource> synthetic_source(int64_t sequences, int64_t seq_len,
                                              int64_t vocab_size, uint64_t seed);

/// The same with examples for BERT: two segments, kMaskedShare of the tokens masked out.
std::unique_ptr<TokenSource> synthetic_examples(int64_t sequences, int64_t seq_len,
                                                int64_t vocab_size, uint64_t seed);

/// Targets are for terms of a model's loss, `wanted`; the first of the data's may be all
/// of them, the others are left out then. InputError for other terms. `name` and
/// `model_type` stand in the message.
void check_losses(const std::vector<std::string>& losses, const std::string& name,
                  const std::vector<std::string>& wanted, const std::string& model_type);
/// The same of a source, which leaves out the others.
void fit_losses(TokenSource& source, const std::vector<std::string>& wanted,
                const std::string& model_type);

/// InputError when both fingerprints are known and differ. `model_tokenizer` is
/// Tokenizer::fingerprint() of the model's own tokenizer, empty if it has none.
void check_tokenizer(const TokenSource& source, const std::string& model_tokenizer);

}  // namespace longhaul::data
