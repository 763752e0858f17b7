#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/log.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::train {

/// True for what has to be packed before training can read it at random: JSON lines and
/// Parquet of ready ids, and save_to_disk directories whose rows differ in length.
bool needs_packing(const fs::path& path);

struct PackOptions {
  std::string field;       ///< where the ids are
  fs::path cache;          ///< the stores' directory
  int64_t vocab_size = 0;  ///< ids are below it
};

/// The token store of these files in the cache: what lies there already, else rank 0
/// builds it while the others wait. Its name depends on the files (path, size, time of
/// change) and the options, so that changed files make another store. Errors of rank 0
/// are thrown on all. Collective.
fs::path pack_sources(const std::vector<fs::path>& paths, const PackOptions& options,
                      comm::Communicator& world, Logger& log);

}  // namespace longhaul::train
