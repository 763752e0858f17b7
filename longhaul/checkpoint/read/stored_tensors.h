#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/byte_runs.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul::checkpoint {

/// Tensors that lie as boxes in files which are read in blocks of kHashBlockBytes: what a
/// checkpoint, a Hugging Face directory and parts in memory have in common. Immutable;
/// any thread may call.
class StoredTensors {
 public:
  virtual ~StoredTensors() = default;

  /// A box in a file.
  struct Part {
    format::TensorSlice slice;
    size_t file = 0;
    uint64_t begin = 0;  ///< file offset of its first byte
  };
  /// Returns the parts that tile a tensor. Throws InputError when there is no tensor of
  /// that name, or it has another global shape than `box`.
  virtual std::vector<Part> parts_of(const std::string& kind,
                                     const format::TensorSlice& box) const = 0;
  virtual size_t num_files() const = 0;
  virtual uint64_t file_size(size_t file) const = 0;
  /// Returns the ranks that can read a file, of the group that reads together; empty: all
  /// ranks can.
  virtual std::vector<int> readers_of(size_t /*file*/) const { return {}; }
  /// Reads whole blocks; `offset` is the start of one. Compares them with their hashes
  /// where there are hashes: InputError names file, block and offset.
  virtual void read_blocks(size_t file, uint64_t offset,
                           std::span<std::byte> bytes) const = 0;
  /// Gives a hint that these bytes will be read soon.
  virtual void will_read(size_t file, uint64_t offset, uint64_t bytes) const = 0;
};

/// A request for elements [begin, end) of `slice`, row-major in its extent, as `dtype` in
/// `out`. slice.dtype is not used.
struct ReadRequest {
  std::string kind;
  format::TensorSlice slice;
  int64_t begin = 0;
  int64_t end = 0;
  format::DType dtype = format::DType::F32;
  std::span<std::byte> out;
};

/// Appends the runs of bytes that fill a request. Returns false, and appends nothing,
/// where a conversion would meet elements that two blocks share; files of other programs
/// may have such elements. Throws InputError as parts_of does, and for dtypes that do not
/// convert.
bool append_wanted(const StoredTensors& stored, const ReadRequest& request,
                   std::vector<WantedRuns>& out);

/// Copies the wanted bytes in the file range [begin, begin + bytes.size()), which `bytes`
/// holds, to where they belong.
void scatter(const WantedRuns& wanted, uint64_t begin, std::span<const std::byte> bytes);
/// Copies the wanted bytes in the file range [begin, end) to where they belong; `packed`
/// holds only these bytes, in order.
void scatter_packed(const WantedRuns& wanted, uint64_t begin, uint64_t end,
                    std::span<const std::byte> packed);

}  // namespace longhaul::checkpoint
