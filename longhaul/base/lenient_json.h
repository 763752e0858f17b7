#pragma once

#include <cstdint>

#include "longhaul/base/json.h"

namespace longhaul {

// Members of an object that another version, or another program, may have written: the
// default where one is absent or of another type. No call throws.

/// Finite.
double number_at(const Json& object, const char* key, double otherwise = 0.0);
/// Within 9e15, where a double is exact.
int64_t integer_at(const Json& object, const char* key, int64_t otherwise = 0);

}  // namespace longhaul
