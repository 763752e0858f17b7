#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/stored_file.h"

namespace longhaul::data {

/// Reads and decompresses the content of a file front to back in constant memory. The
/// contents of consecutive gzip members or zstd frames are joined. Zstd windows up to 128
/// MiB are read, as the zstd program reads them without --long. Not thread-safe.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Returns the next piece, which is valid until the next call; empty at the end. Throws
  /// InputError, with the offset in the file, for damaged or truncated data.
  virtual std::span<const char> next() = 0;
};

/// Opens the content of a file from byte `begin` on, which must be 0 if the file is
/// compressed.
std::unique_ptr<ByteStream> open_bytes(StoredFile& file, uint64_t begin = 0);

/// Unpacks one gzip member piece by piece, and checks the member's checksum and length at
/// its end. Not thread-safe.
class GzipDecoder {
 public:
  struct Step {
    size_t taken = 0;  ///< packed bytes that were used
    size_t made = 0;   ///< bytes of content that were written
    bool ended = false;
    std::string problem;  ///< what is wrong with the data; empty when the data are good
  };

  GzipDecoder();
  ~GzipDecoder();
  /// Unpacks as much as fits into `content`. Without packed bytes the decoder writes
  /// content that it still holds.
  Step run(std::span<const char> packed, std::span<char> content);
  /// Begins the next member.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::data
