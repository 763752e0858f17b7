#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/data/bert/shards/shard.h"

namespace longhaul::data {

/// Reads a shard with libhdf5 in this process; nothing is checked but its form. For a
/// child with limits (shard_reader.h): libhdf5 is not trusted with an outside file.
/// Before any column is allocated: every column is a dataset of its own in the root group
/// (no soft, external or user-defined link), of little- or big-endian signed integers of
/// the known size and rank; contiguous, compact or chunked, all of it stored in this file
/// (no external or virtual storage, no missing chunk); filters are deflate, shuffle and
/// fletcher32, each at most once; shapes agree, stay within the limits and can come out
/// of a file of this size. Chunks are unpacked here, not by libhdf5, into exactly their
/// size, and their checksums are verified. No plug-in is ever loaded.
/// InputError names the file, the column and what is wrong.
/// Also InputError where the build has no HDF5.
BertShard read_shard_unprotected(const fs::path& path);

/// One column as it goes into the file: chunks of whole rows, each deflated.
struct PackedColumn {
  std::vector<std::string> chunks;
};
/// A shard that is ready to be written.
struct PackedShard {
  ShardShape shape;
  int64_t chunk_rows = 0;  ///< rows of every chunk; the last is padded with zeros
  std::array<PackedColumn, kColumnForms.size()> columns;  ///< in the order of ShardColumn
};

/// Deflates a shard. Pure; any thread may call it.
PackedShard pack_shard(const BertShard& shard);

/// Writes a file as h5py does with compression="gzip": datasets input_ids,
/// masked_lm_positions, masked_lm_ids i4 and input_mask, segment_ids,
/// next_sentence_labels i1. The same shard gives the same bytes. The file is synced; its
/// directory is not. One thread at a time in the whole process.
void write_packed_shard(const fs::path& path, const PackedShard& shard);

/// Version of libhdf5, or an empty string where the build has none.
std::string hdf5_version();

}  // namespace longhaul::data
