#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/data/bert/shards/shard.h"
#include "longhaul/system/reader_process.h"

namespace longhaul::data {

/// Reads BERT shards (HDF5). libhdf5 runs in a child process with limits only
/// (ReaderProcess): its holes are no holes of this program. What comes back is checked
/// value by value. Make it early, before threads and MPI. Any thread may call it.
class ShardReader {
 public:
  ShardReader();
  /// A whole shard, its hash compared with the record beside it where there is one, with
  /// check_shard done. InputError names the file and what is wrong.
  BertShard read(const fs::path& path, int64_t vocab_size);

 private:
  ReaderProcess process_;
};

/// True for a file *.hdf5 or *.h5, and for a directory of shards: one of
/// `data build --bert`, or one that holds *_training_*.hdf5.
bool names_bert_shards(const fs::path& path);

/// The shards that arguments name, sorted by path as the source system sorts them: a
/// directory stands for its files *_training_*.hdf5. InputError when one names nothing,
/// or when a directory of `data build --bert` lacks one of its shards.
std::vector<fs::path> find_bert_shards(const std::vector<fs::path>& arguments);

}  // namespace longhaul::data
