#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "longhaul/base/file.h"

namespace longhaul {

using Json = nlohmann::json;
/// Keeps the order of keys: for files whose form is preserved on export.
using OrderedJson = nlohmann::ordered_json;

/// Parses outside text with a limit on nesting. InputError names `what` (a path)
/// and the byte offset. Duplicate keys in an object are refused.
Json parse_json(std::string_view text, std::string_view what, int max_depth = 64);
OrderedJson parse_ordered_json(std::string_view text, std::string_view what,
                               int max_depth = 64);

/// read_text and parse_json.
Json read_json(const fs::path& path, uint64_t limit = uint64_t{1} << 28);

}  // namespace longhaul
