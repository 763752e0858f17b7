#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/format/dtype.h"

namespace longhaul::format {

// A GGUF file (github.com/ggml-org/ggml, docs/gguf.md) has four parts, all little-endian:
// magic, version and two counts; keys with their values; a list of tensors; the data of
// the tensors. The list and each tensor's data are padded to the alignment.

/// How the elements of a tensor are stored; the numbers are those of the format.
enum class GgufType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q8_0 = 8,  ///< blocks of 32 elements (q8_0.h)
  BF16 = 30,
};
/// Returns "F32", "Q8_0" ...
std::string_view gguf_type_name(GgufType type);
/// Returns the bytes of so many elements, which are whole blocks.
uint64_t gguf_bytes(GgufType type, int64_t elements);

/// A value that the reader has checked and not kept: a list of strings or of numbers, or
/// a text beyond 1 MiB.
struct GgufUnread {
  uint64_t elements = 0;  ///< of the list, or bytes of the text
  bool operator==(const GgufUnread&) const = default;
};
/// The value of a key. A reader gives integers of 8 and 16 bits as those of 32.
using GgufValue =
    std::variant<GgufUnread, uint32_t, int32_t, uint64_t, int64_t, float, double, bool,
                 std::string, std::vector<std::string>, std::vector<int32_t>,
                 std::vector<float>, std::vector<bool>>;
/// Keys with their values, in the order of the file.
using GgufValues = std::vector<std::pair<std::string, GgufValue>>;
/// Returns the value of a key, or null.
const GgufValue* find_value(const GgufValues& values, std::string_view key);
/// Returns a value for messages: "12", "\"text\"", "[false, true]".
std::string describe_value(const GgufValue& value);

/// One tensor of a file.
struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  ///< outermost dim first, as elsewhere in this program
  GgufType type = GgufType::F32;
  uint64_t offset = 0;  ///< of the first byte, counted from the start of the data

  int64_t num_elements() const;
  uint64_t bytes() const { return gguf_bytes(type, num_elements()); }
};

/// What stands before the data of a file.
struct GgufHeader {
  GgufValues values;
  std::vector<GgufTensor> tensors;
  uint64_t data_start = 0;  ///< file offset of the first data byte
};

/// The alignment of files that have no general.alignment, which this program writes.
inline constexpr uint64_t kGgufAlignment = 32;
/// Names of tensors are shorter than this many bytes.
inline constexpr size_t kMaxGgufName = 64;

/// Returns all that stands before the data, and sets the tensors' offsets. Throws
/// InputError for a tensor's name that the format cannot hold.
std::string gguf_header_bytes(const GgufValues& values, std::vector<GgufTensor>& tensors);

/// Parses and checks a whole file. Throws InputError that names `what` (the path), the
/// byte, what was expected and what was found. Refused are:
/// - other versions and the other byte order;
/// - a file that ends in any part;
/// - counts, lengths and alignments that do not fit the file;
/// - keys and tensors that come twice;
/// - tensors of other types, with holes between them, or beyond the end;
/// - bytes behind the last tensor.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& what);

/// Writes a file front to back beside its place, to which it is moved at the end, so that
/// it appears whole or not at all. Not thread-safe.
class GgufWriter {
 public:
  /// Throws InputError if something has the path already.
  GgufWriter(const fs::path& path, const GgufValues& values,
             std::vector<GgufTensor> tensors);
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Appends the next bytes of the current tensor. When its last byte has come, the next
  /// tensor is the current one. Throws Error (Internal) beyond the tensor's size.
  void append(std::span<const std::byte> bytes);
  /// Syncs the file and moves it to its path once all bytes came. Throws InputError if
  /// another process has made something of this name meanwhile.
  void finish();
  /// Returns the size of the whole file.
  uint64_t file_size() const { return size_; }

 private:
  void write(std::span<const std::byte> bytes);

  fs::path path_;
  std::vector<GgufTensor> tensors_;
  ScratchPath scratch_;
  File file_;
  uint64_t size_ = 0;
  uint64_t written_ = 0;
  uint64_t flushed_ = 0;    ///< file offset up to which writing to the device has begun
  size_t current_ = 0;      ///< the tensor that is being written
  uint64_t in_tensor_ = 0;  ///< bytes of it that were written
};

}  // namespace longhaul::format
