#pragma once

#include <cstdint>

#include "longhaul/base/file.h"
#include "longhaul/cluster/health/health.h"

namespace longhaul::cluster {

/// Writes a file of fresh random bytes, syncs it, drops it from the cache, reads it back,
/// compares and removes it. Also fails for too little free space or too few inodes. May
/// hang with the file system: run it in a bounded_check.
HealthCheck check_directory(const fs::path& directory, uint64_t bytes,
                            double min_free_bytes);

}  // namespace longhaul::cluster
