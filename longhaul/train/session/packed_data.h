#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/system/log.h"

namespace longhaul::train {

/// True for what has to be packed before training can read it at random: JSON lines,
/// Parquet and Arrow of ready ids and directories of them, save_to_disk directories whose
/// rows differ in length, and HDF5 shards of BERT's examples, files and directories.
/// `field` is where rows hold the ids.
bool needs_packing(const fs::path& path, const std::string& field = data::kIdsField);

/// True when the run's data are HDF5 shards: rank 0 needs a ShardReader then.
bool needs_shard_reader(const RunConfig& config);

struct PackOptions {
  std::string field = data::kIdsField;  ///< where the ids are
  fs::path cache;                       ///< the stores' directory
  int64_t vocab_size = 0;               ///< ids are below it
  int64_t seq_len = 0;                  ///< of examples
  data::ShardReader* shards = nullptr;  ///< rank 0's, for HDF5
};

/// The token store of these files in the cache, or the packed examples of shards: what
/// lies there already, else rank 0 builds it while the others wait. Its name depends on
/// the files (path, size, time of change) and the options, so that changed files make
/// another store. Shards and other files do not mix (ConfigError). Errors of rank 0 are
/// thrown on all. Collective.
fs::path pack_sources(const std::vector<fs::path>& paths, const PackOptions& options,
                      comm::Communicator& world, Logger& log);

}  // namespace longhaul::train
