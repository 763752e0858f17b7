#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/data/store/inspect_store.h"

namespace longhaul::data {

/// Describes a directory of BERT examples as describe_data describes a store: whether it
/// is complete, what it was made of and how. Only global_size of `options` counts.
/// Nothing where `path` has no bert.json.
std::optional<DataDescription> describe_bert(const fs::path& path,
                                             const InspectOptions& options = {});

/// Hashes every shard again. InputError names the first damaged shard. Returns the bytes
/// that were checked.
uint64_t verify_bert(const fs::path& path);

}  // namespace longhaul::data
