#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace longhaul::cluster {

/// The names of an enumeration's values, in the order of the values. Files, messages and
/// events hold these names.
template <typename Enum, size_t N>
struct NamesOf {
  std::array<const char*, N> names;

  const char* of(Enum value) const { return names.at(static_cast<size_t>(value)); }
  /// Returns the value of a name, or nothing for an unknown name.
  std::optional<Enum> find(std::string_view name) const {
    const auto place = std::ranges::find(names, name);
    if (place == names.end()) return std::nullopt;
    return static_cast<Enum>(place - names.begin());
  }
};

}  // namespace longhaul::cluster
