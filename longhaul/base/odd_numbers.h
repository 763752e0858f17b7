#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// A number of a JSON text that no number type here can hold (see parse_json), and which
/// of the text's numbers it is.
struct OddNumber {
  size_t number;
  size_t at;
  std::string_view text;
};

/// A JSON text that a strict parser takes: each odd number is 0, followed by spaces, so
/// that every byte keeps its offset. The given text must outlive it.
class PlainJson {
 public:
  explicit PlainJson(std::string_view given);
  PlainJson(const PlainJson&) = delete;
  PlainJson& operator=(const PlainJson&) = delete;

  std::string_view text() const {
    return odd_.empty() ? given_ : std::string_view(replaced_);
  }
  /// Returns the odd numbers in the order in which they stand.
  const std::vector<OddNumber>& odd() const { return odd_; }

 private:
  std::string_view given_;
  std::vector<OddNumber> odd_;
  std::string replaced_;
};

}  // namespace longhaul
