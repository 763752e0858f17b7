#pragma once

#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/objects/access.h"
#include "longhaul/system/log.h"

namespace longhaul::train {

/// Returns whether an entry of data.train or data.validation is an address of files of
/// ready ids. Such files are packed straight from the store, without copies.
bool is_packed_in_place(const fs::path& entry);

/// Copies what the run reads by address to each machine, before anything is opened, so
/// that no rank waits for another one's fetch within a collective. The log tells time and
/// bytes. Afterwards `objects` finds the copies. An exception are token stores and
/// save_to_disk directories that are only read in order (Access::read_in_pieces), whose
/// shards or files of rows are not fetched yet. Returns whether there is such a store or
/// directory. Throws InputError, before anything is fetched, where init.weights is the
/// address of a mirror of checkpoints. Collective.
bool stage_inputs(const RunConfig& config, comm::Communicator& world,
                  const objects::Access& objects, system::Logger& log);

/// Returns the paths that an entry of data names, with the local copy's path for what
/// stage_inputs() has fetched.
std::vector<fs::path> local_paths(const DataPaths& entry, const objects::Access& objects);

}  // namespace longhaul::train
