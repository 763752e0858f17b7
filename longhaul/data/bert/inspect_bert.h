#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/data/store/inspect_store.h"

namespace longhaul::data {

/// Describes a directory of BERT examples: whether it is complete, what it was made of
/// and how. Only global_size of `options` is used. Returns nothing if `path` has no
/// bert.json.
std::optional<DataDescription> describe_bert(const fs::path& path,
                                             const InspectOptions& options = {});

/// Hashes every shard again. Throws InputError that names the first damaged shard.
/// Returns the number of bytes that were checked.
uint64_t verify_bert(const fs::path& path);

}  // namespace longhaul::data
