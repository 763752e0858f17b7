#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/data/bert/shards/hdf5_column.h"
#include "longhaul/data/bert/shards/hdf5_handle.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"

namespace longhaul::data {
namespace {

Hdf5Handle open_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    fail_input("data", "{}: no file, or not a regular one; name an HDF5 shard",
               path.string());
  }
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Sets the plain driver, whatever HDF5_DRIVER says. Locks are off, since cluster file
  // systems may refuse locks. There is no cache for files that external links name.
  H5Pset_fapl_sec2(access.id());
  H5Pset_file_locking(access.id(), false, true);
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  H5Pset_elink_file_cache_size(access.id(), 0);
  Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose);
  if (!file.valid()) {
    fail_input("data", "{}: not a whole HDF5 file ({}); copy it again", path.string(),
               hdf5_reason());
  }
  return file;
}

/// Returns the number of rows and the lengths of all columns. Throws InputError when the
/// columns disagree.
ShardShape common_shape(const std::vector<Hdf5Column>& columns, const fs::path& path) {
  ShardShape shape;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnForm& form = kColumnForms[i];
    if (i == 0) shape.rows = columns[i].rows();
    if (form.column == ShardColumn::InputIds) shape.seq_len = columns[i].width();
    if (form.column == ShardColumn::MaskedLmPositions) {
      shape.predictions = columns[i].width();
    }
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnForm& form = kColumnForms[i];
    const int64_t width = column_width(shape, form.column);
    if (columns[i].rows() == shape.rows && columns[i].width() == width) continue;
    fail_input("data",
               "{}: {}: shape [{}, {}], but [{}, {}] would fit: input_ids has {} rows of "
               "{}, masked_lm_positions rows of {}; the file is damaged",
               path.string(), form.name, columns[i].rows(), columns[i].width(),
               shape.rows, width, shape.rows, shape.seq_len, shape.predictions);
  }
  const std::string problem = shape_problem(shape);
  if (!problem.empty()) {
    fail_input("data", "{}: {}", path.string(), problem);
  }
  return shape;
}

}  // namespace

BertShard read_shard_unprotected(const fs::path& path) {
  tame_hdf5();
  const Hdf5Handle file = open_file(path);
  std::vector<Hdf5Column> columns;
  columns.reserve(kColumnForms.size());
  for (const ColumnForm& form : kColumnForms) columns.emplace_back(file.id(), form, path);
  const ShardShape shape = common_shape(columns, path);
  const uint64_t file_bytes = fs::file_size(path);
  uint64_t stored = 0;
  for (const Hdf5Column& column : columns) stored += column.check_storage(file_bytes);
  if (stored > file_bytes) {
    fail_input("data", "{}: its columns take {} bytes of a file of {}; they overlap",
               path.string(), stored, file_bytes);
  }
  std::string bytes(shard_bytes(shape), '\0');
  char* into = bytes.data();
  for (size_t i = 0; i < columns.size(); ++i) {
    columns[i].read(into);
    into += column_bytes(shape, kColumnForms[i]);
  }
  return {shape, std::move(bytes)};
}

}  // namespace longhaul::data
