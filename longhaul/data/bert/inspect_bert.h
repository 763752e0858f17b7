#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/data/store/inspect_store.h"

namespace longhaul::data {

/// What describe_data is for stores: whether a directory of BERT examples is complete,
/// what it was made of and how. Of `options` global_size alone counts. Nothing where
/// `path` has no bert.json.
std::optional<DataDescription> describe_bert(const fs::path& path,
                                             const InspectOptions& options = {});

/// Re-hashes every shard; InputError names the first damaged one. Returns the bytes.
uint64_t verify_bert(const fs::path& path);

}  // namespace longhaul::data
