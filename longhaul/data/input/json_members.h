#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace longhaul::data {

/// One member of a JSON object as it stands in the text; the key has its quotes.
struct RawMember {
  std::string_view key;
  std::string_view value;
};

/// Returns the members of the JSON object `text`; nothing if `text` is no object. Values
/// are separated but not interpreted. The grammar must hold, but numbers may have any
/// size, and NaN and Infinity are accepted as Python writes them. Surrogates may stand
/// alone, and values may be nested 10,000 deep. The stack does not grow with the depth.
std::optional<std::vector<RawMember>> split_members(std::string_view text);

/// Where the first value of a JSON text ends.
struct FirstValue {
  size_t end = 0;      ///< behind the value, or where the text stops being JSON
  bool valid = false;  ///< the text is JSON up to `end`
  bool cut = false;    ///< the text ends inside the value
};

/// Finds the end of the object or list that a text begins with.
FirstValue first_value(std::string_view text);

}  // namespace longhaul::data
