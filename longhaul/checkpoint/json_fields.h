#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::checkpoint {

// Fields of outside JSON objects; each throws InputError with `what` (a path), the key
// and what was found. The folder's own use.

const Json& field(const Json& object, const char* key, const std::string& what);
std::string string_field(const Json& object, const char* key, const std::string& what);
/// 0 to 2^63 - 1.
uint64_t unsigned_field(const Json& object, const char* key, const std::string& what);
const Json& array_field(const Json& object, const char* key, const std::string& what);
/// Each 0 to 2^63 - 1.
std::vector<int64_t> shape_field(const Json& object, const char* key,
                                 const std::string& what);

}  // namespace longhaul::checkpoint
