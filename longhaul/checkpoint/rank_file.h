#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul::checkpoint {

// Each rank has a pair of files. The safetensors file has the rank's boxes, and the
// sidecar lists the boxes and the hash of each block. Only this folder uses this header.

/// A box in a rank's file.
struct StoredBox {
  std::string kind;
  format::TensorSlice slice;
  uint64_t begin = 0;  ///< file offset of its first byte
};

/// Returns the JSON of a box in a sidecar; `begin` is StoredBox::begin.
Json box_json(const std::string& kind, const format::TensorSlice& slice, uint64_t begin);
/// Reads a box from a sidecar. Throws InputError unless the box lies in its tensor and in
/// a file of this size.
StoredBox parse_box(const JsonFields& fields, uint64_t data_size);

/// Returns "a1_rank_00003".
std::string rank_file_stem(const std::string& prefix, int rank);

/// Writes and fsyncs the data file; returns the text of its sidecar. Throws as File does.
/// `cancelled` is called now and then: where it returns true, ends early and returns an
/// empty text.
std::string write_rank_data(const fs::path& dir, const std::string& stem, int rank,
                            const std::vector<StateTensor>& tensors,
                            const std::function<bool()>& cancelled = {});

/// Hex digits of a block's hash.
inline constexpr size_t kHashDigits = 32;

/// A sidecar, parsed and checked against the size of its data file.
struct Sidecar {
  std::vector<StoredBox> boxes;
  /// kHashDigits digits for each block, side by side; the hash of this text is
  /// combine_hashes().
  std::string block_hashes;
  static Sidecar parse(std::string_view text, uint64_t data_size,
                       const std::string& what);
};

/// Reads bytes at `offset` and checks every block that they touch; throws InputError that
/// names file and block.
void read_verified(const File& file, uint64_t file_size, std::string_view block_hashes,
                   uint64_t offset, std::span<std::byte> bytes);

/// Reads a whole file and checks every block; throws InputError that names file and
/// block. Returns early when `cancelled` returns true.
void verify_blocks(const File& file, uint64_t file_size, std::string_view block_hashes,
                   const std::function<bool()>& cancelled = {});

}  // namespace longhaul::checkpoint
