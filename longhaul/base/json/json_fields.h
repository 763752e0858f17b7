#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul {

/// Fields of one JSON object from outside. Every error is an InputError of `area` that
/// names the file, the field and what was found. The object must outlive it.
class JsonFields {
 public:
  /// Opens `object`. Each message begins with `what`, which names the file or the part of
  /// the file that holds the object. Each message ends with `advice`, which says what to
  /// do and may be empty. Throws InputError if `object` is no object.
  JsonFields(const Json& object, std::string area, std::string what,
             std::string advice = {});
  /// Returns an object inside this one. Messages about it have the same `what` and
  /// `advice`.
  JsonFields inside(const Json& object) const;

  bool has(const char* name) const { return object_.contains(name); }
  const Json& field(const char* name) const;
  /// Returns a field, which must have exactly this type; an integer must also fit into
  /// it.
  template <typename Value>
  Value get(const char* name) const {
    const Json& value = field(name);
    if constexpr (std::integral<Value> && !std::same_as<Value, bool>) {
      if (!fits<Value>(value)) fail_field(name, value, "a whole number of that size");
      return value.template get<Value>();
    } else {
      try {
        return value.template get<Value>();
      } catch (const Json::exception&) {
        fail_field(name, value, "of the type that is expected");
      }
    }
  }
  /// Returns a number from 0 to 2^56: sums of a few do not overflow.
  int64_t count(const char* name) const;
  /// Returns a list of at most `most` entries.
  const Json& list(const char* name, size_t most = SIZE_MAX) const;
  /// Returns a list of at most 16 numbers, each from 0 to 2^63 - 1.
  std::vector<int64_t> shape(const char* name) const;

  /// Throws InputError with `what` before the problem and `advice` behind it.
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  [[noreturn]] void fail_field(const char* name, const Json& value,
                               const char* expected) const;

  template <typename Value>
  static bool fits(const Json& value) {
    if (value.is_number_unsigned()) return std::in_range<Value>(value.get<uint64_t>());
    return value.is_number_integer() && std::in_range<Value>(value.get<int64_t>());
  }

  const Json& object_;
  std::string area_;
  std::string what_;
  std::string advice_;
};

}  // namespace longhaul
