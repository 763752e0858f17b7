#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/data/bert/shards/chunk_filters.h"

namespace {

using namespace longhaul;

// A file without a name; the reading process opens it through this process.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* bytes, size_t size)
      : file_(::memfd_create("shard", MFD_CLOEXEC)),
        whole_(::write(file_, bytes, size) == static_cast<ssize_t>(size)) {}
  ~MemoryFile() { ::close(file_); }
  bool whole() const { return whole_; }
  fs::path path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_);
  }

 private:
  int file_;
  bool whole_;
};

// Takes the bytes for a chunk of a file and undoes every set of filters on it.
void unfilter(const uint8_t* bytes, size_t size) {
  using enum data::ChunkFilter;
  for (const auto& filters : {std::vector{Deflate}, std::vector{Shuffle, Deflate},
                              std::vector{Shuffle, Deflate, Fletcher32},
                              std::vector{Fletcher32, Deflate}, std::vector{Shuffle}}) {
    std::string chunk(reinterpret_cast<const char*>(bytes), size);
    const std::string problem = data::unfilter_chunk(filters, 64, 4, chunk);
    if (problem.empty() && chunk.size() != 64) __builtin_trap();
  }
}

}  // namespace

// Takes any bytes as a shard, as training reads it. The result is an InputError, or a
// shard whose values are in range. libhdf5 runs in a process of its own, with limits. A
// crash of that process must not show here.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static data::ShardReader reader;
  unfilter(bytes, size);
  const MemoryFile file(bytes, size);
  if (!file.whole()) return 0;
  try {
    const data::BertShard shard = reader.read(file.path(), 1000);
    if (shard.bytes().size() != data::shard_bytes(shard.shape())) __builtin_trap();
  } catch (const InputError&) {
  }
  return 0;
}
