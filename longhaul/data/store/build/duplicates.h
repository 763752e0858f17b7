#pragma once

#include "longhaul/data/store/build/build_directory.h"
#include "longhaul/data/store/build/build_parts.h"

namespace longhaul::data {

/// Reads a part and writes a hash for each record to directory.hashes(part).
void hash_part(const BuildContext& context, int part, Workshop& shop, BuildMeter& meter);

/// Finds, from the hashes of all parts, the records that repeat an earlier record of the
/// input. Writes directory.duplicates(part) for each part, then duplicates_known(). Holds
/// one bit for each record in memory, and sets of hashes within `memory_bytes`. Hashes
/// that do not fit into memory at once are written to files, one file for each range of
/// hashes.
void find_duplicates(const BuildDirectory& directory, int parts, uint64_t memory_bytes);

DuplicateBits read_duplicates(const fs::path& path);

}  // namespace longhaul::data
