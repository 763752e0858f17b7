#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/hash.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul::format {

// A file (github.com/huggingface/safetensors) begins with the length of its header, u64
// little-endian. The header follows as a JSON object {name: {dtype, shape, data_offsets:
// [begin, end]}}, and then the data. Offsets count from the end of the header. The
// tensors cover the data without holes.

/// The reference reader refuses larger headers too.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  ///< first byte, counted from the start of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;  ///< file offset of the first data byte

  /// Returns the entry of a name, or null, in O(n).
  const SafetensorsEntry* find(std::string_view name) const;
};

/// Parses and checks a header. `prefix` holds at least the file's first 8 + header length
/// bytes (or the whole file when that is shorter); `file_size` is the whole file's.
/// Throws InputError that names `what` (the path), the byte offset or the tensor, what
/// was expected and what was found. Refused are a length past the end, bad or deep JSON,
/// duplicate names, unknown dtypes, byte lengths that do not fit shape and dtype,
/// overlap, holes, and data after the end or missing there.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix,
                                           uint64_t file_size, const std::string& what);

/// An open file with a checked header. Any thread may read.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const fs::path& path);
  const SafetensorsHeader& header() const { return header_; }
  const fs::path& path() const { return file_.path(); }
  uint64_t size() const { return size_; }
  /// Reads part of an entry's data: `offset` counts from the entry's first byte.
  void read(const SafetensorsEntry& entry, uint64_t offset,
            std::span<std::byte> bytes) const;
  /// Returns the bytes of all entries together.
  uint64_t data_size() const { return size_ - header_.data_start; }
  /// Fills `bytes` from the data of the file. `offset` counts from the first byte of the
  /// data.
  void read_data(uint64_t offset, std::span<std::byte> bytes) const;
  /// Tells the system that a range of the data will be read soon.
  void will_read(uint64_t offset, uint64_t bytes) const;

 private:
  File file_;
  uint64_t size_ = 0;
  SafetensorsHeader header_;
};

/// The tensors of a file to be written: name, dtype and shape, known before any data.
struct SafetensorsPlan {
  /// Adds a tensor. Its data must be appended in the order of the calls to add; put
  /// wider dtypes first, so that every element is aligned.
  void add(std::string name, DType dtype, std::vector<int64_t> shape);
  /// Returns the length, the header JSON and padding to a multiple of 8 bytes.
  std::string header_bytes(const std::map<std::string, std::string>& metadata = {
                               {"format", "pt"}}) const;
  std::vector<SafetensorsEntry> entries;
};

/// Writes a file front to back and hashes its blocks. Not thread-safe. The file is not
/// complete before finish().
class SafetensorsWriter {
 public:
  SafetensorsWriter(const fs::path& path, const SafetensorsPlan& plan);
  /// Appends the next bytes of the data. Throws Error (Internal) beyond the planned size.
  void append(std::span<const std::byte> bytes);
  /// Syncs and closes the file after all bytes came, and returns the hashes of its
  /// blocks. Throws Error (Internal) if bytes are missing.
  std::vector<std::string> finish();
  uint64_t file_size() const { return header_size_ + planned_; }
  /// Returns the file offset of the data.
  uint64_t data_start() const { return header_size_; }

 private:
  File file_;
  BlockHasher hasher_;
  uint64_t header_size_ = 0;
  uint64_t planned_ = 0;
  uint64_t written_ = 0;
  uint64_t flushed_ = 0;  ///< file offset up to which writing to the device has begun
};

/// Computes the bytes of a tensor. Returns false if the product does not fit 63 bits or
/// an extent is negative.
bool tensor_bytes(const std::vector<int64_t>& shape, DType dtype, uint64_t* bytes);

}  // namespace longhaul::format
