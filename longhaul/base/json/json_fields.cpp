#include "longhaul/base/json/json_fields.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 56;
constexpr size_t kMaxDims = 16;
constexpr size_t kShown = 60;

}  // namespace

JsonFields::JsonFields(const Json& object, std::string area, std::string what,
                       std::string advice)
    : object_(object),
      area_(std::move(area)),
      what_(std::move(what)),
      advice_(std::move(advice)) {
  if (!object.is_object()) fail("an object was expected");
}

JsonFields JsonFields::inside(const Json& object) const {
  return {object, area_, what_, advice_};
}

const Json& JsonFields::field(const char* name) const {
  const auto found = object_.find(name);
  if (found == object_.end()) fail(fmt::format("the field '{}' is missing", name));
  return *found;
}

int64_t JsonFields::count(const char* name) const {
  const auto value = get<int64_t>(name);
  if (value < 0 || value > kMaxCount) fail_field(name, field(name), "a count");
  return value;
}

const Json& JsonFields::list(const char* name, size_t most) const {
  const Json& value = field(name);
  if (!value.is_array()) fail_field(name, value, "a list");
  if (value.size() > most) {
    fail(fmt::format("the list '{}' has {} entries, more than {}", name, value.size(),
                     most));
  }
  return value;
}

std::vector<int64_t> JsonFields::shape(const char* name) const {
  std::vector<int64_t> shape;
  for (const Json& extent : list(name, kMaxDims)) {
    if (!fits<int64_t>(extent) || extent.get<int64_t>() < 0) {
      fail_field(name, extent, "a shape");
    }
    shape.push_back(extent.get<int64_t>());
  }
  return shape;
}

void JsonFields::fail(const std::string& problem) const {
  fail_input(area_, "{}: {}{}{}", what_, problem, advice_.empty() ? "" : "; ", advice_);
}

void JsonFields::fail_field(const char* name, const Json& value,
                            const char* expected) const {
  fail(fmt::format(
      "the field '{}' is {}, not {}", name,
      (value.is_binary() ? json_text(value)
                         : value.dump(-1, ' ', true, Json::error_handler_t::replace))
          .substr(0, kShown),
      expected));
}

}  // namespace longhaul
