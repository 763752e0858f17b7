#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/data/bert/shards/chunk_filters.h"
#include "longhaul/data/bert/shards/hdf5_handle.h"
#include "longhaul/data/bert/shards/shard.h"

namespace longhaul::data {

/// One column of an open HDF5 file. The column is checked in full before anything is
/// allocated for it. Every failure is an InputError with file and column.
class Hdf5Column {
 public:
  /// Checks link, type, rank, layout and filters. Reads no data.
  Hdf5Column(hid_t file, const ColumnForm& form, const fs::path& path);

  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }  ///< 1 for a column of rank 1

  /// Returns the bytes that the column takes in the file. First checks that the whole
  /// column is stored and can come from a file of `file_bytes` bytes.
  uint64_t check_storage(uint64_t file_bytes) const;

  /// Reads the whole column in host byte order into rows x width x (bytes of an element)
  /// bytes at `into`.
  void read(char* into) const;

 private:
  struct ChunkGrid;
  [[noreturn]] void fail(const std::string& what) const;
  void open(hid_t file);
  void check_type();
  void check_extents();
  void check_layout();
  void check_filters(hid_t plist);
  ChunkGrid grid() const;
  uint64_t column_size() const;
  uint64_t chunk_size() const;
  void read_chunks(char* into) const;

  const ColumnForm& form_;
  const fs::path& path_;
  Hdf5Handle dataset_;
  int64_t rows_ = 0;
  int64_t width_ = 1;
  bool big_endian_ = false;
  bool chunked_ = false;
  int64_t chunk_rows_ = 0;
  int64_t chunk_width_ = 1;
  std::vector<ChunkFilter> filters_;
};

}  // namespace longhaul::data
