#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/data/bert/shards/shard.h"
#include "longhaul/system/reader_process.h"

namespace longhaul::data {

/// Reads BERT shards (HDF5). libhdf5 runs only in a child process with limits
/// (ReaderProcess), so that its security holes do not endanger this program. The values
/// that come back are checked one by one. A reader must be made before threads and MPI
/// start. Any thread may call a reader.
class ShardReader {
 public:
  ShardReader();
  /// Reads a whole shard, compares its hash with the record beside the shard if there is
  /// a record, and calls check_shard. An InputError names the file and what is wrong.
  BertShard read(const fs::path& path, int64_t vocab_size);

 private:
  system::ReaderProcess process_;
};

/// Returns true for a file *.hdf5 or *.h5, for a directory that `data build --bert` made,
/// and for a directory with files *_training_*.hdf5.
bool names_bert_shards(const fs::path& path);

/// Returns the shards that arguments name, sorted by path as in NVIDIA's recipe. A
/// directory stands for its files *_training_*.hdf5. Throws InputError when an argument
/// names nothing, or when a directory of `data build --bert` lacks one of its shards.
std::vector<fs::path> find_bert_shards(const std::vector<fs::path>& arguments);

}  // namespace longhaul::data
