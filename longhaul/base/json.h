#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "longhaul/base/file.h"

namespace longhaul {

using Json = nlohmann::json;
/// Keeps the order of keys, for files that are exported in the form in which they were
/// read.
using OrderedJson = nlohmann::ordered_json;

/// Parses outside text with a limit on nesting. InputError names `what` (a path) and the
/// byte offset. Duplicate keys in an object are refused.
///
/// Python's json also writes numbers that JSON has no form for, or that fit no number
/// type of this program: NaN, Infinity, -Infinity, 1e999, whole numbers beyond 64 bits.
/// Each of these odd numbers becomes a binary value, which is of no type that a reader
/// asks for. A reader that asks for its key refuses it by name; if nobody asks for it, it
/// does no harm. json_text writes the number as it stood in the text.
Json parse_json(std::string_view text, std::string_view what, int max_depth = 64);
OrderedJson parse_ordered_json(std::string_view text, std::string_view what,
                               int max_depth = 64);

/// Returns the text of a value, with `indent` spaces a level (-1: on one line). What JSON
/// cannot hold never makes it throw: bytes that are no UTF-8 (of a path, for example)
/// become U+FFFD, and a number that is not finite becomes null. Numbers of a file that no
/// number type here can hold are written as they stood in the file.
std::string json_text(const Json& value, int indent = -1);
std::string json_text(const OrderedJson& value, int indent = -1);

/// Returns what the library says about JSON that it cannot take, without the library's
/// own names.
std::string words_of(const Json::exception& problem);

/// Reads and parses a file.
Json read_json(const fs::path& path, uint64_t limit = uint64_t{1} << 28);

}  // namespace longhaul
