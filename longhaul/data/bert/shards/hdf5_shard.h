#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/data/bert/shards/shard.h"

namespace longhaul::data {

/// Reads a shard with libhdf5 in this process and checks its form only. Call it in a
/// child process with limits (shard_reader.h): libhdf5 is not trusted with a file from
/// outside. These are checked before any column is allocated: every column is a dataset
/// of its own in the root group (no soft, external or user-defined link), of little- or
/// big-endian signed integers of the known size and rank. A column is contiguous, compact
/// or chunked, and all of it is stored in this file (no external or virtual storage, no
/// missing chunk). Its filters are deflate, shuffle and fletcher32, each at most once.
/// The shapes agree, stay within the limits and can come out of a file of this size. This
/// program, not libhdf5, unpacks the chunks into exactly their size and verifies their
/// checksums. No plug-in is ever loaded. InputError names the file, the column and what
/// is wrong; also InputError where the build has no HDF5.
BertShard read_shard_unprotected(const fs::path& path);

/// A shard that is ready to be written: of each column its chunks of whole rows,
/// deflated.
struct PackedShard {
  ShardShape shape;
  int64_t chunk_rows = 0;  ///< rows of every chunk; the last is padded with zeros
  /// In the order of ShardColumn.
  std::array<std::vector<std::string>, kColumnForms.size()> columns;
};

/// Deflates a shard. Pure; any thread may call it.
PackedShard pack_shard(const BertShard& shard);

/// Writes a file as h5py does with compression="gzip": datasets input_ids,
/// masked_lm_positions, masked_lm_ids i4 and input_mask, segment_ids,
/// next_sentence_labels i1. Equal shards give equal bytes. The file is synced; its
/// directory is not. Only one thread of the process may call it at a time.
void write_packed_shard(const fs::path& path, const PackedShard& shard);

/// Returns the version of libhdf5, or an empty string where the build has no HDF5.
std::string hdf5_version();

}  // namespace longhaul::data
