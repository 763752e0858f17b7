#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// The candidate with the smallest edit distance, if that is at most a third of
/// the name's length plus one.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates);

/// "846.6 GB", "12.3 MB": powers of 1000, as disks are sold and quotas are set.
std::string human_bytes(double bytes);
/// "5GB", "500MB", "2GiB", "1.5 KB" or "1000000" as bytes, at least 1; InputError
/// otherwise.
uint64_t parse_byte_size(std::string_view text);
/// "1h 02m", "3m 20s", "12 s".
std::string human_duration(double seconds);
/// "1,359,146".
std::string grouped(int64_t number);
/// Shell-style pattern with * and ? over a whole name.
bool glob_match(std::string_view pattern, std::string_view name);

/// Returns the words of a text with spaces between them, in which tables here write lists
/// of names.
std::vector<std::string> split_words(std::string_view list);
/// Returns whether the word is one of such a list.
bool has_word(std::string_view list, std::string_view word);

/// The byte offset of the first invalid UTF-8 sequence (RFC 3629), or nothing.
std::optional<size_t> find_invalid_utf8(std::string_view text);

}  // namespace longhaul
