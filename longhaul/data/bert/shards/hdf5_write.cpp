#include <hdf5.h>

#include "longhaul/base/error.h"
#include "longhaul/data/bert/shards/hdf5_handle.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"

namespace longhaul::data {
namespace {

/// The compression level that h5py records. Readers do not need the level.
constexpr unsigned kDeflateLevel = 4;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  fail_temporary("data",
                 "{}: {} ({}); check the free space of the "
                 "disk, then run the same command again",
                 path.string(), what, hdf5_reason());
}

void write_column(hid_t file, const ColumnForm& form, const PackedShard& shard,
                  const fs::path& path) {
  const hsize_t extents[2] = {
      static_cast<hsize_t>(shard.shape.rows),
      static_cast<hsize_t>(column_width(shard.shape, form.column))};
  const hsize_t chunk[2] = {static_cast<hsize_t>(shard.chunk_rows), extents[1]};
  const Hdf5Handle space(H5Screate_simple(form.rank, extents, nullptr), H5Sclose);
  const Hdf5Handle plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  // The file holds no times, so that equal examples give equal bytes.
  if (H5Pset_chunk(plist.id(), form.rank, chunk) < 0 ||
      H5Pset_deflate(plist.id(), kDeflateLevel) < 0 ||
      H5Pset_obj_track_times(plist.id(), false) < 0) {
    fail(path, "cannot describe a dataset");
  }
  const Hdf5Handle dataset(
      H5Dcreate2(file, form.name, form.bytes == 4 ? H5T_STD_I32LE : H5T_STD_I8LE,
                 space.id(), H5P_DEFAULT, plist.id(), H5P_DEFAULT),
      H5Dclose);
  if (!dataset.valid()) fail(path, "cannot make a dataset");
  hsize_t offset[2] = {0, 0};
  for (const std::string& bytes : shard.columns[static_cast<size_t>(form.column)]) {
    if (H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, 0, offset, bytes.size(), bytes.data()) <
        0) {
      fail(path, "cannot write");
    }
    offset[0] += chunk[0];
  }
}

}  // namespace

void write_packed_shard(const fs::path& path, const PackedShard& shard) {
  tame_hdf5();
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_sec2(access.id());
  H5Pset_file_locking(access.id(), false, true);
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  {
    Hdf5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()),
                    H5Fclose);
    if (!file.valid()) fail(path, "cannot be made");
    for (const ColumnForm& form : kColumnForms) {
      write_column(file.id(), form, shard, path);
    }
    if (!file.reset()) fail(path, "cannot be finished");
  }
  File::open_read(path).sync();
}

}  // namespace longhaul::data
