#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/data/bert/shards/shard.h"

namespace longhaul::data {

/// Reads a shard with libhdf5 in this process and checks the shard's form only. Must be
/// called in a child process with limits (shard_reader.h), since libhdf5 is not trusted
/// with a file from outside. The form is checked before any column is allocated. Every
/// column is a separate dataset in the root group, without soft, external or user-defined
/// links. Its values are little- or big-endian signed integers of the known size and
/// rank. A column is contiguous, compact or chunked, and the whole column is stored in
/// this file: no external or virtual storage, no missing chunk. The filters of a column
/// are deflate, shuffle and fletcher32, each at most once. The shapes agree, stay within
/// the limits and can come out of a file of this size. This program, not libhdf5, unpacks
/// the chunks into exactly their size and verifies their checksums. No plug-in is ever
/// loaded. An InputError names the file, the column and what is wrong. The function also
/// throws InputError if the build has no HDF5.
BertShard read_shard_unprotected(const fs::path& path);

/// A shard that is ready to be written. Each column is a list of deflated chunks of whole
/// rows.
struct PackedShard {
  ShardShape shape;
  int64_t chunk_rows = 0;  ///< rows of every chunk; the last chunk is padded with zeros
  /// The chunks of each column, in the order of ShardColumn.
  std::array<std::vector<std::string>, kColumnForms.size()> columns;
};

/// Deflates a shard. Pure; any thread may call it.
PackedShard pack_shard(const BertShard& shard);

/// Writes a file as h5py does with compression="gzip". Datasets input_ids,
/// masked_lm_positions and masked_lm_ids have type i4; input_mask, segment_ids and
/// next_sentence_labels have type i1. Equal shards give equal bytes. The file is synced,
/// but its directory is not. Only one thread of the process may call the function at a
/// time.
void write_packed_shard(const fs::path& path, const PackedShard& shard);

/// Returns the version of libhdf5, or an empty string if the build has no HDF5.
std::string hdf5_version();

}  // namespace longhaul::data
