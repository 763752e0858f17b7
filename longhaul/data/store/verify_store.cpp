#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/store/inspect_store.h"
#include "longhaul/data/store/proved_file.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {
namespace {

/// Compares one file with its hash, and with the hashes of its blocks if `blocks` has
/// them. Returns the file's bytes.
uint64_t verify_file(const fs::path& path, const StoreFile& file, const Json& blocks) {
  const MappedFile mapped(path);
  BlockHasher hasher;
  hasher.update(mapped.bytes());
  const std::vector<std::string> found = hasher.finish();
  if (mapped.bytes().size() == file.bytes && combine_hashes(found) == file.hash) {
    return file.bytes;
  }
  std::string where;
  if (blocks.contains(file.name)) {
    const Json& expected = blocks.at(file.name);
    for (size_t i = 0; i < found.size() && i < expected.size(); ++i) {
      if (expected[i] == found[i]) continue;
      where = fmt::format(" in bytes {} to {}", i * kHashBlockBytes,
                          std::min<uint64_t>((i + 1) * kHashBlockBytes, file.bytes));
      break;
    }
  }
  fail_input("data",
             "{}: damaged{}: its hash is {}, but store.json says {}; build the store "
             "again or copy it again",
             path.string(), where, combine_hashes(found), file.hash);
}

}  // namespace

uint64_t verify_store(const fs::path& path) {
  if (is_saved_dataset(path)) {
    fail_input("data",
               "{}: a save_to_disk directory has no hashes; 'longhaul inspect' checks "
               "that the directory is complete",
               path.string());
  }
  const StoreInfo info = read_store_info(path);
  uint64_t bytes = 0;
  for (const StoreShard& shard : info.shards) {
    const fs::path hashes = path / shard.hash_file.name;
    const Json blocks =
        parse_json(read_proved_text(hashes, shard.hash_file), hashes.string());
    for (const StoreFile& file : shard.files()) {
      bytes += verify_file(path / file.name, file, blocks);
    }
  }
  for (const StoreFile& file : info.side_files()) {
    bytes += verify_file(path / file.name, file, Json::object());
  }
  return bytes;
}

}  // namespace longhaul::data
