#pragma once

#include "longhaul/data/store/build/build_directory.h"
#include "longhaul/data/store/build/build_parts.h"

namespace longhaul::data {

/// Reads a part and writes a hash per record to directory.hashes(part).
void hash_part(const BuildContext& context, int part, Workshop& shop, BuildMeter& meter);

/// From the hashes of all parts: which records repeat one that comes earlier in the
/// input. Writes directory.duplicates(part) for each, then duplicates_known(). Holds a
/// bit per record and sets of hashes within `memory_bytes`; what does not fit at once
/// goes through files, one for each range of hashes.
void find_duplicates(const BuildDirectory& directory, int parts, uint64_t memory_bytes);

DuplicateBits read_duplicates(const fs::path& path);

}  // namespace longhaul::data
