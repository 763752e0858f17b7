#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace longhaul::data {

/// One member of a JSON object as it stands in the text: the key with its quotes.
struct RawMember {
  std::string_view key;
  std::string_view value;
};

/// The members of the JSON object that `text` is. Values are not understood, only told
/// apart: the grammar must hold, but numbers may be of any size (NaN and Infinity too, as
/// Python writes them), surrogates may stand alone, and values may be nested 10,000 deep.
/// Nothing where it is no such object. Takes no stack with the depth.
std::optional<std::vector<RawMember>> split_members(std::string_view text);

}  // namespace longhaul::data
