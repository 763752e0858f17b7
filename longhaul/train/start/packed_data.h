#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/objects/object_store.h"
#include "longhaul/system/log.h"

namespace longhaul::train {

/// Returns whether data must be packed before training can read it at random. Such data
/// are JSON lines, Parquet and Arrow of ready ids, and directories of these; save_to_disk
/// directories whose rows differ in length; and files and directories of HDF5 shards of
/// BERT's examples. `field` is the field of a row that holds the ids. A save_to_disk
/// directory that is read file by file (`in_pieces`) is not packed.
bool needs_packing(const fs::path& path, const std::string& field = data::kIdsField,
                   bool in_pieces = false);

/// Returns whether the run's data are HDF5 shards, or may be, since an address does not
/// show its files yet. Rank 0 needs a ShardReader then.
bool needs_shard_reader(const RunConfig& config);

struct PackOptions {
  std::string field = data::kIdsField;  ///< the field of a row that holds the ids
  fs::path cache;                       ///< the directory of all packed data
  int64_t vocab_size = 0;               ///< all ids must be below this
  int64_t seq_len = 0;                  ///< tokens of an example
  data::ShardReader* shards = nullptr;  ///< on rank 0, for HDF5
  std::shared_ptr<objects::ObjectStore> objects;  ///< null where no file is an address
};

/// Returns the token store of these files in the cache, or the packed examples of shards.
/// Takes what lies in the cache already, else what rank 0 builds while the other ranks
/// wait. The name depends on the files (path, size, time of change) and the options, so
/// that changed files make another store. Shards and other files do not mix
/// (ConfigError). Errors of rank 0 are thrown on all ranks. Collective.
fs::path pack_sources(const std::vector<fs::path>& paths, const PackOptions& options,
                      comm::Communicator& world, system::Logger& log);

}  // namespace longhaul::train
