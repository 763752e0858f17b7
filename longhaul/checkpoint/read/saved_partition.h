#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/description/description.h"

namespace longhaul::checkpoint {

/// The field of a checkpoint's numerics that says how many layers each stage had
/// (LayoutDescription::partition). Older versions of the program did not write it.
inline constexpr const char* kPartition = "partition";

/// Returns how many layers each stage had in the run that saved a checkpoint with these
/// numerics and settings.
std::vector<int64_t> saved_partition(const Json& numerics, const RunConfig& saved,
                                     const ModelDescription& model);

/// Returns parallel.partition as a start of this run takes it. Where the setting is empty
/// and the start goes on from a checkpoint of the same pp and virtual_stages, whose run
/// did not set it either, the stages keep the layers that they had. Otherwise returns the
/// setting. Asks this process's file system. A checkpoint that is damaged is passed over:
/// the load says what is wrong with it. Throws TemporaryError where a file cannot be read
/// now, and ConfigError where another version of this program wrote the checkpoint.
std::vector<int64_t> partition_of_start(const RunConfig& config,
                                        const ModelDescription& model);

}  // namespace longhaul::checkpoint
