#pragma once

#include <fmt/format.h>

#include <string>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"

namespace longhaul::data {

/// Fields of one JSON object of a store's own files, with the file in every message.
class StoreFields {
 public:
  StoreFields(const Json& json, const fs::path& file);
  /// InputError when it is missing or of another type.
  template <typename Value>
  Value get(const char* name) const {
    const Json& value = field(name);
    try {
      return value.template get<Value>();
    } catch (const Json::exception&) {
      fail(fmt::format("the field '{}' has the wrong type: {}", name, value.dump()));
    }
  }
  const Json& field(const char* name) const;
  bool has(const char* name) const { return json_.contains(name); }
  /// 0 to 2^56.
  int64_t count(const char* name) const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  const Json& json_;
  const fs::path& file_;
};

}  // namespace longhaul::data
