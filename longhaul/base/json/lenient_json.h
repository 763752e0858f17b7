#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul {

// Members of an object that another version, or another program, may have written. No
// call throws: a member that is absent or of another type has the default.

/// Returns a finite number.
double number_at(const Json& object, const char* key, double otherwise = 0.0);
/// Returns an integer within 9e15, where a double is exact.
int64_t integer_at(const Json& object, const char* key, int64_t otherwise = 0);
/// Returns a text, which the object owns.
std::string_view text_at(const Json& object, const char* key,
                         std::string_view otherwise = {});
/// Returns the objects in a list, which owns them; none if `list` is no list.
std::vector<const Json*> objects_in(const Json& list);

/// Returns the value, or null.
template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace longhaul
