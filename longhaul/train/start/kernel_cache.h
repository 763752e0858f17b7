#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/objects/access.h"
#include "longhaul/system/log.h"

namespace longhaul::train {

/// Copies those compiled kernels from run.compile_cache_from, which may be an address,
/// that run.compile_cache_dir lacks; does nothing without that setting. One rank of each
/// machine copies: `node` has the ranks of this one. Throws InputError, on all ranks,
/// where a file cannot be read or written. Collective over `world`.
void fill_kernel_cache(const RunConfig& config, comm::Communicator& world,
                       const comm::Communicator& node, const objects::Access& objects,
                       system::Logger& log);

/// Copies the files DIR/ab/cd/HASH.neff below `from` that are absent below `to`, each
/// whole or not at all. Returns how many there were. Throws InputError where a file
/// cannot be read or written.
int64_t copy_kernels(const fs::path& from, const fs::path& to);

}  // namespace longhaul::train
