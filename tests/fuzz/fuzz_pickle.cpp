// Takes any bytes as a torch file and as a bare pickle. The result is a clear InputError,
// or plain data. The tensors of such data lie in their storages, the storages lie in the
// file, and the data survive the way through a pipe.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/imports/torch_file.h"

namespace {

using longhaul::imports::PickleTree;

void check(const PickleTree& tree, size_t file_size, bool placed) {
  for (const longhaul::imports::PickleTensor& tensor : tree.tensors) {
    if (!longhaul::imports::problem_of(tensor, tree.storages.at(tensor.storage))
             .empty()) {
      std::abort();
    }
  }
  for (const longhaul::imports::PickleStorage& storage : tree.storages) {
    if (!placed) continue;
    if (storage.begin > file_size || storage.bytes() > file_size - storage.begin) {
      std::abort();
    }
  }
  std::string bytes;
  tree.serialise(bytes);
  size_t position = 0;
  const PickleTree again = PickleTree::deserialise(bytes, position);
  if (position != bytes.size() || again.size() != tree.size()) std::abort();
  for (PickleTree::Ref ref = 0; ref < again.size(); ++ref) {
    if (again.describe(ref) != tree.describe(ref)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    check(longhaul::imports::read_torch_file(bytes, 0, "fuzz"), size, true);
  } catch (const longhaul::InputError&) {
  }
  try {
    check(longhaul::imports::parse_pickle(bytes, "fuzz"), size, false);
  } catch (const longhaul::InputError&) {
  }
  // An answer of the child process may be damaged as well, so any bytes are tried as one.
  try {
    size_t position = 0;
    PickleTree::deserialise({reinterpret_cast<const char*>(data), size}, position);
  } catch (const longhaul::InputError&) {
  }
  return 0;
}
