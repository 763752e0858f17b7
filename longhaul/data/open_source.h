#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/data/store/row_plan.h"
#include "longhaul/objects/pieces.h"

namespace longhaul::data {

/// Opens training or validation data: a token store (`longhaul data build`), packed
/// examples of BERT (bert/example_store.h) or a directory that Hugging Face datasets
/// wrote with save_to_disk. With `document_mask` positions restart and attention stops at
/// document boundaries (token stores only). With `verify` each block of a token store is
/// compared with its hash when the block is first read. A save_to_disk directory has no
/// hashes. `field` is the column of the ids in a save_to_disk directory; the other kinds
/// have no fields and refuse any other value than kIdsField. With `pieces`, whose
/// directory is `path`, the data is read shard by shard, or file by file. The InputError
/// says what was found, what is accepted, and what to do.
std::unique_ptr<TokenSource> open_source(
    const fs::path& path, int64_t seq_len, bool document_mask = false, bool verify = true,
    const std::string& field = kIdsField,
    std::shared_ptr<const objects::Pieces> pieces = {});

/// Opens a token store as rows of whole documents (store/whole_rows_source.h). All other
/// data are refused with InputError, which says what to do, and so is a `field` other
/// than kIdsField.
std::unique_ptr<TokenSource> open_whole_rows(const fs::path& path, const WholeRows& how,
                                             bool verify = true,
                                             const std::string& field = kIdsField);

/// Throws InputError if `field` is not kIdsField. `what` names the kind of data, which
/// has no fields.
void refuse_field(const fs::path& path, const std::string& field, const char* what);

/// Replaces shell patterns by the paths that they match (input/path_pattern.h). Throws
/// InputError for a pattern that matches nothing, and for names that are not UTF-8.
std::vector<fs::path> expand_paths(const std::vector<fs::path>& entries);

/// Throws InputError unless the data's terms of the loss, `losses`, begin with the terms
/// of the model's loss, `wanted`. `name` and `model_type` stand in the message.
void check_losses(const std::vector<std::string>& losses, const std::string& name,
                  const std::vector<std::string>& wanted, const std::string& model_type);
/// Makes a source leave out targets that the model has no use for, and checks the terms
/// that remain as check_losses does.
void fit_losses(TokenSource& source, const std::vector<std::string>& wanted,
                const std::string& model_type);

/// Throws InputError when both fingerprints are known and differ. `model_tokenizer` is
/// Tokenizer::fingerprint() of the model's own tokenizer; empty if the model has none.
void check_tokenizer(const TokenSource& source, const std::string& model_tokenizer);

}  // namespace longhaul::data
