#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/stored_file.h"

namespace longhaul::data {

/// The content of a file front to back, decompressed on the way, in constant memory.
/// Several gzip members or zstd frames one after another are one content. Of zstd, window
/// sizes up to 128 MiB are read (what the zstd program reads without --long). Not
/// thread-safe.
class ByteStream {
 public:
  /// Begins at `begin`, which must be 0 where the file is compressed.
  explicit ByteStream(StoredFile& file, uint64_t begin = 0);
  ~ByteStream();
  /// The next piece, valid until the next call; empty at the end. InputError for damaged
  /// or truncated data, with the offset in the file.
  std::span<const char> next();

 private:
  struct State;
  struct Plain;
  struct Gzip;
  struct Zstd;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::data
