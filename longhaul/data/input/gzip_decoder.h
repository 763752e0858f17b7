#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace longhaul::data {

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
