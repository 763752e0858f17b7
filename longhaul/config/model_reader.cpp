#include "longhaul/config/model_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "longhaul/base/error.h"

namespace longhaul::config {
namespace {

std::string shown(const OrderedJson& json) {
  std::string text = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

/// A whole number that fits; unsigned values past 2^63 do not.
std::optional<int64_t> whole(const OrderedJson& json) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return std::nullopt;
  }
  return json.get<int64_t>();
}

}  // namespace

JsonFields::JsonFields(const OrderedJson& object, const std::string& file,
                       std::string prefix)
    : object_(object), file_(file), prefix_(std::move(prefix)) {}

void JsonFields::fail(std::string_view key, const std::string& problem) const {
  throw InputError("model", fmt::format("{}: {}{} {}", file_, prefix_, key, problem));
}

const OrderedJson* JsonFields::find(std::string_view key) const {
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> JsonFields::integer(std::string_view key, int64_t low,
                                           int64_t high) const {
  const OrderedJson* json = find(key);
  if (!json) return std::nullopt;
  const auto value = whole(*json);
  if (!value) fail(key, fmt::format("expected an integer, found {}", shown(*json)));
  if (*value < low || *value > high) {
    fail(key, fmt::format("= {} must be from {} to {}", *value, low, high));
  }
  return value;
}

std::optional<double> JsonFields::number(std::string_view key) const {
  const OrderedJson* json = find(key);
  if (!json) return std::nullopt;
  if (!json->is_number())
    fail(key, fmt::format("expected a number, found {}", shown(*json)));
  const auto value = json->get<double>();
  if (!std::isfinite(value)) fail(key, "is not a finite number");
  return value;
}

std::optional<bool> JsonFields::boolean(std::string_view key) const {
  const OrderedJson* json = find(key);
  if (!json) return std::nullopt;
  if (!json->is_boolean()) {
    fail(key, fmt::format("expected true or false, found {}", shown(*json)));
  }
  return json->get<bool>();
}

std::optional<std::string> JsonFields::text(std::string_view key) const {
  const OrderedJson* json = find(key);
  if (!json) return std::nullopt;
  if (!json->is_string())
    fail(key, fmt::format("expected a string, found {}", shown(*json)));
  return json->get<std::string>();
}

int64_t JsonFields::required_integer(std::string_view key, int64_t low,
                                     int64_t high) const {
  const auto value = integer(key, low, high);
  if (!value) fail(key, "is missing");
  return *value;
}

double JsonFields::required_number(std::string_view key) const {
  const auto value = number(key);
  if (!value) fail(key, "is missing");
  return *value;
}

std::vector<int64_t> JsonFields::token_ids(std::string_view key) const {
  const OrderedJson* json = find(key);
  if (!json) return {};
  std::vector<int64_t> out;
  const auto add = [&](const OrderedJson& item) {
    const auto value = whole(item);
    if (!value || *value < -1) {
      fail(key,
           fmt::format("expected a token id or a list of them, found {}", shown(*json)));
    }
    if (*value >= 0) out.push_back(*value);  // -1 is how some files say "none"
  };
  if (json->is_array()) {
    for (const OrderedJson& item : *json) add(item);
  } else {
    add(*json);
  }
  return out;
}

}  // namespace longhaul::config
