#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json_fields.h"
#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul::checkpoint {

// One rank's pair of files: the safetensors file with its boxes, and the sidecar that
// lists the boxes and the hash of each block. The folder's own use.

/// A box in a rank file.
struct StoredBox {
  std::string kind;
  TensorSlice slice;
  uint64_t begin = 0;  ///< file offset of its first byte
};

/// A box as sidecars spell it; `begin` as in StoredBox.
Json box_json(const std::string& kind, const TensorSlice& slice, uint64_t begin);
/// InputError unless it lies in its tensor and in a file of this size.
StoredBox parse_box(const JsonFields& fields, uint64_t data_size);

/// "a1_rank_00003".
std::string rank_file_stem(const std::string& prefix, int rank);

/// Writes and fsyncs the data file; returns the text of its sidecar. Throws as File does.
/// Ends early with an empty text when `cancelled`, asked now and then, says so.
std::string write_rank_data(const fs::path& dir, const std::string& stem, int rank,
                            const std::vector<StateTensor>& tensors,
                            const std::function<bool()>& cancelled = {});

/// Hex digits of a block's hash.
inline constexpr size_t kHashDigits = 32;

/// A sidecar, parsed and checked against the size of its data file.
struct Sidecar {
  std::vector<StoredBox> boxes;
  /// kHashDigits per block, side by side; the hash of this text is combine_hashes'.
  std::string block_hashes;
  static Sidecar parse(std::string_view text, uint64_t data_size,
                       const std::string& what);
};

/// Reads bytes at `offset` and checks every block they touch; InputError names file and
/// block.
void read_verified(const File& file, uint64_t file_size, std::string_view block_hashes,
                   uint64_t offset, std::span<std::byte> bytes);

/// Reads a whole file and checks every block; InputError names file and block. Returns
/// early when `cancelled` says so.
void verify_blocks(const File& file, uint64_t file_size, std::string_view block_hashes,
                   const std::function<bool()>& cancelled = {});

}  // namespace longhaul::checkpoint
