#include "longhaul/checkpoint/json_fields.h"

#include <fmt/format.h>

#include <limits>

#include "longhaul/base/error.h"

namespace longhaul::checkpoint {
namespace {

[[noreturn]] void fail(const Json& found, const char* key, const std::string& what,
                       const char* expected) {
  throw InputError("checkpoint",
                   fmt::format("{}: '{}' must be {}, found {}", what, key, expected,
                               found.dump(-1, ' ', true).substr(0, 60)));
}

uint64_t to_unsigned(const Json& value, const char* key, const std::string& what) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    fail(value, key, what, "a whole number from 0 to 2^63-1");
  }
  return value.get<uint64_t>();
}

}  // namespace

const Json& field(const Json& object, const char* key, const std::string& what) {
  if (!object.is_object()) fail(object, key, what, "in an object");
  const auto found = object.find(key);
  if (found == object.end()) {
    throw InputError("checkpoint", fmt::format("{}: no '{}'", what, key));
  }
  return *found;
}

std::string string_field(const Json& object, const char* key, const std::string& what) {
  const Json& value = field(object, key, what);
  if (!value.is_string()) fail(value, key, what, "a string");
  return value.get<std::string>();
}

uint64_t unsigned_field(const Json& object, const char* key, const std::string& what) {
  return to_unsigned(field(object, key, what), key, what);
}

const Json& array_field(const Json& object, const char* key, const std::string& what) {
  const Json& value = field(object, key, what);
  if (!value.is_array()) fail(value, key, what, "a list");
  return value;
}

std::vector<int64_t> shape_field(const Json& object, const char* key,
                                 const std::string& what) {
  const Json& value = array_field(object, key, what);
  if (value.size() > 16) fail(value, key, what, "a list of at most 16 numbers");
  std::vector<int64_t> shape;
  for (const Json& extent : value) {
    shape.push_back(static_cast<int64_t>(to_unsigned(extent, key, what)));
  }
  return shape;
}

}  // namespace longhaul::checkpoint
