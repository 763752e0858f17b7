#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"

namespace longhaul::data {
namespace {

[[noreturn]] void refuse(const fs::path& path) {
  fail_input("data",
             "{}: this build has no HDF5; install libhdf5-dev and libaec-dev, then "
             "configure and build again",
             path.string());
}

}  // namespace

BertShard read_shard_unprotected(const fs::path& path) { refuse(path); }
void write_packed_shard(const fs::path& path, const PackedShard&) { refuse(path); }
std::string hdf5_version() { return {}; }

}  // namespace longhaul::data
