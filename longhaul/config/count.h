#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::config {

/// What a text says of a count: the count, or why it says none. Both are empty for a text
/// that is no number at all.
struct CountText {
  std::optional<int64_t> count;
  std::string problem;  ///< "'16m' may be 16M (16,000,000) or 0.016; write ..."
};

/// Reads a whole number: "16000", "1_000", "1e6", or with a multiple behind it: k
/// (1,000), M (1,000,000), B (10^9), T (10^12), Ki (1,024), Mi (1,048,576), Gi (2^30). A
/// fraction is allowed if the result is whole ("2.5B"). For a form with two readings the
/// problem names both. `of_length` is for tokens of a sequence: there people mean 1,000
/// as well as 1,024 by k.
CountText read_count(std::string_view text, bool of_length);

/// Returns whether a key or flag of this name is a length of sequences ("data.seq_len",
/// "--seq-len").
bool is_length(std::string_view name);

/// The forms that read_count takes, for messages and the reference.
inline constexpr std::string_view kCountForms =
    "16000, 1e6, or k (1,000), M (1,000,000), B (10^9), T (10^12), Ki (1,024) and Mi "
    "(1,048,576) behind a number";

}  // namespace longhaul::config
