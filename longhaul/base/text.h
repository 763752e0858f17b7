#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// Returns the candidate that takes the fewest edits; to swap two letters is one edit. At
/// most two edits are allowed, and at most a third of the name's length. If one of the
/// names is the beginning of the other, there may be more than two.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates);

/// Returns "846.6 GB", "12.3 MB": powers of 1000, as disks are sold and quotas are set.
std::string human_bytes(double bytes);
std::string human_bytes(std::integral auto bytes) {
  return human_bytes(static_cast<double>(bytes));
}
/// Returns "5GB", "500MB", "2GiB", "1.5 KB" or "1000000" as bytes, at least 1. Throws
/// InputError for other text, and for "5G", which has two readings.
uint64_t parse_byte_size(std::string_view text);
/// Returns "1h 02m", "3m 20s", "12 s".
std::string human_duration(double seconds);
/// Returns "1 rank", "2 ranks", "1,359 tokens". `plural` is given if the plural is not
/// the singular with an s.
std::string counted(int64_t number, std::string_view singular,
                    std::string_view plural = {});
/// Returns "a, b and 3 more": at most `most` of the names, and the number of the others.
std::string listed(std::span<const std::string> names, size_t most);
/// Returns "1,359,146".
std::string grouped(int64_t number);
/// Returns the index of the first * ? or [ of a text, which makes it a pattern; npos if
/// it has none.
size_t find_wildcard(std::string_view text);
/// Returns whether a text has * ? or [.
inline bool has_wildcard(std::string_view text) {
  return find_wildcard(text) != std::string_view::npos;
}
/// Returns whether a shell-style pattern with * and ? matches a whole name.
bool glob_match(std::string_view pattern, std::string_view name);

/// Returns the words of a text that are separated by spaces. Tables of this program write
/// lists of names in this form.
std::vector<std::string> split_words(std::string_view list);
/// Returns whether `word` is one of the words of `list`, which are separated by spaces.
bool has_word(std::string_view list, std::string_view word);

/// Returns the text without the blanks at its ends.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n\f\v");

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// Returns whether the character is an ASCII letter, a digit or "_".
bool is_word_character(char c);
/// Returns a name for files and jobs: each character but letters, digits, ".", "_" and
/// "-" becomes "_".
std::string plain_characters(std::string name);

/// Returns the parts of a text between separators. A part may be empty; a text without a
/// separator is one part.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Returns the lines of a text without their ends. The last line may lack its end.
std::vector<std::string_view> lines_of(std::string_view text);

/// Returns the number of code points of valid UTF-8.
inline int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

/// Returns the byte offset of the first invalid UTF-8 sequence (RFC 3629), or nothing.
std::optional<size_t> find_invalid_utf8(std::string_view text);

}  // namespace longhaul
