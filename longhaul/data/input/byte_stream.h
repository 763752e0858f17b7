#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::data {

/// The content of a file front to back, gunzipped where its name ends in .gz; hashes the
/// stored bytes on the way. Not thread-safe.
class ByteStream {
 public:
  explicit ByteStream(const fs::path& path);
  ~ByteStream();
  /// The next piece, valid until the next call; empty at the end. InputError for damaged
  /// or truncated gzip, with the offset in the file.
  std::span<const char> next();
  /// Stored bytes read so far.
  uint64_t bytes_read() const;
  /// After the end: combine_hashes over the stored bytes' blocks.
  std::string hash();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::data
