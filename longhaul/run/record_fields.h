#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/base/json/lenient_json.h"

namespace longhaul::run {

// The one form in which a run's records become JSON and are read again. A record is a
// struct with `static void each(auto& record, auto&& fields)`, which calls fields("key",
// record.member, "key", record.member ...). LH_FIELDS defines `each` for a record whose
// keys are the names of its members.

#define LH_FIELDS(...)                                               \
  static void each(auto& record, auto&& fields) {                    \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(LH_FIELD, __VA_ARGS__)) \
  }
#define LH_FIELD(member) fields(#member, record.member);

/// Turns a text from outside into one that may be kept, of at most `longest` bytes.
using TextFilter = std::function<std::string(std::string_view text, size_t longest)>;

/// Keeps the first `longest` bytes as they are: a TextFilter for texts that nobody shows.
std::string first_bytes(std::string_view text, size_t longest);

/// A text member with a limit of its own. Other texts have the limit kLongestField.
template <typename Text>
struct AtMost {
  size_t bytes;
  Text& text;
};
template <typename Text>
AtMost(size_t, Text&) -> AtMost<Text>;

inline constexpr size_t kLongestField = 400;

template <typename Record>
Json write_fields(const Record& record);
template <typename Record>
Record read_fields(const Json& object, const TextFilter& text);

namespace detail {

/// Calls one(key, value) for each pair of its arguments.
template <typename Self>
struct EachField {
 private:
  friend Self;
  EachField() = default;

 public:
  template <typename T, typename... Rest>
  void operator()(const char* key, T&& value, Rest&&... rest) const {
    static_cast<const Self&>(*this).one(key, std::forward<T>(value));
    if constexpr (sizeof...(rest) > 0) (*this)(std::forward<Rest>(rest)...);
  }
};

struct FieldWriter : EachField<FieldWriter> {
  explicit FieldWriter(Json& object_) : object(object_) {}
  Json& object;
  template <typename T>
  void one(const char* key, const T& value) const {
    object[key] = value;
  }
  template <typename T>
  void one(const char* key, const std::optional<T>& value) const {
    if (value) object[key] = *value;
  }
  void one(const char* key, const AtMost<const std::string>& value) const {
    object[key] = value.text;
  }
  template <typename T>
  void one(const char* key, const std::vector<T>& values) const {
    Json& list = object[key] = Json::array();
    for (const T& value : values) {
      if constexpr (std::is_class_v<T>) {
        list.push_back(write_fields(value));
      } else {
        list.push_back(value);
      }
    }
  }
};

/// Reads an object that any version, or anybody, may have written: a member that is
/// absent or of another type stays as it is.
struct FieldReader : EachField<FieldReader> {
  FieldReader(const Json& object_, const TextFilter& text_)
      : object(object_), text(text_) {}
  const Json& object;
  const TextFilter& text;
  void one(const char* key, int64_t& value) const {
    value = integer_at(object, key, value);
  }
  void one(const char* key, double& value) const {
    value = number_at(object, key, value);
  }
  void one(const char* key, std::string& value) const {
    value = text(text_at(object, key), kLongestField);
  }
  void one(const char* key, AtMost<std::string> value) const {
    value.text = text(text_at(object, key), value.bytes);
  }
  void one(const char* key, Json& value) const { value = object.value(key, Json()); }
  template <typename T>
  void one(const char* key, std::optional<T>& value) const {
    const auto found = object.find(key);
    if (found == object.end()) return;
    const bool fits =
        std::is_same_v<T, std::string> ? found->is_string() : found->is_number();
    if (fits) one(key, value.emplace());
  }
  template <typename T>
  void one(const char* key, std::vector<T>& values) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_array()) return;
    for (const Json& value : *found) {
      if constexpr (std::is_class_v<T>) {
        if (value.is_object()) values.push_back(read_fields<T>(value, text));
      } else {
        const bool fits =
            std::is_floating_point_v<T> ? value.is_number() : value.is_number_integer();
        if (fits) values.push_back(value.get<T>());
      }
    }
  }
};

}  // namespace detail

/// Returns the record as an object.
template <typename Record>
Json write_fields(const Record& record) {
  Json object = Json::object();
  Record::each(record, detail::FieldWriter{object});
  return object;
}

/// Reads a record from an object that may come from anybody; each text goes through
/// `text`. What is absent or of another type has its default.
template <typename Record>
Record read_fields(const Json& object, const TextFilter& text) {
  Record record;
  Record::each(record, detail::FieldReader{object, text});
  return record;
}

}  // namespace longhaul::run
