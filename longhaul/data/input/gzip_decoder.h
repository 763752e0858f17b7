#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace longhaul::data {

/// One gzip member: from packed bytes to its content, piece by piece; its checksum and
/// length are checked at its end. Not thread-safe.
class GzipDecoder {
 public:
  struct Step {
    size_t taken = 0;  ///< of the packed bytes
    size_t made = 0;   ///< of the content
    bool ended = false;
    std::string problem;  ///< what is wrong with the data; empty when nothing is
  };

  GzipDecoder();
  ~GzipDecoder();
  /// Without packed bytes it gives what it holds back, if anything.
  Step run(std::span<const char> packed, std::span<char> content);
  /// Begins the next member.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::data
