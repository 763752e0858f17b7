#include "longhaul/families/config_fields.h"

#include <cmath>
#include <limits>

#include "longhaul/base/text.h"

namespace longhaul::families {
namespace {

std::string shown(const OrderedJson& json) {
  std::string text = json_text(json);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

/// Returns a whole number that fits int64_t, or nothing.
std::optional<int64_t> whole(const OrderedJson& json) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return std::nullopt;
  }
  return json.get<int64_t>();
}

}  // namespace

ConfigFields::ConfigFields(const OrderedJson& object, const std::string& file,
                           std::string prefix)
    : object_(object), file_(file), prefix_(std::move(prefix)) {}

void ConfigFields::refuse(std::string_view key, const OrderedJson& value) const {
  fail(key,
       "= {} is not available yet; remove it, or set it to null if the model does not "
       "need it",
       json_text(value).substr(0, 80));
}

void ConfigFields::refuse_true(std::initializer_list<std::string_view> keys,
                               std::string_view problem) const {
  for (const std::string_view key : keys) {
    if (boolean(key).value_or(false)) fail(key, "= true {}", problem);
  }
}

const OrderedJson* ConfigFields::find(std::string_view key) const {
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> ConfigFields::integer(std::string_view key, int64_t low,
                                             int64_t high) const {
  const OrderedJson* json = find(key);
  if (!json) return std::nullopt;
  const auto value = whole(*json);
  if (!value) fail(key, "expected an integer, found {}", shown(*json));
  if (*value < low || *value > high) {
    fail(key, "= {} must be from {} to {}", *value, low, high);
  }
  return value;
}

std::optional<double> ConfigFields::number(std::string_view key) const {
  const OrderedJson* json = find(key);
  if (!json) return std::nullopt;
  if (!json->is_number()) fail(key, "expected a number, found {}", shown(*json));
  const auto value = json->get<double>();
  if (!std::isfinite(value)) fail(key, "is not a finite number");
  return value;
}

std::optional<bool> ConfigFields::boolean(std::string_view key) const {
  const OrderedJson* json = find(key);
  if (!json) return std::nullopt;
  if (!json->is_boolean()) fail(key, "expected true or false, found {}", shown(*json));
  return json->get<bool>();
}

std::optional<std::string> ConfigFields::text(std::string_view key) const {
  const OrderedJson* json = find(key);
  if (!json) return std::nullopt;
  if (!json->is_string()) fail(key, "expected a string, found {}", shown(*json));
  return json->get<std::string>();
}

int64_t ConfigFields::required_integer(std::string_view key, int64_t low,
                                       int64_t high) const {
  const auto value = integer(key, low, high);
  if (!value) fail(key, "is missing");
  return *value;
}

double ConfigFields::required_number(std::string_view key) const {
  const auto value = number(key);
  if (!value) fail(key, "is missing");
  return *value;
}

std::string ConfigFields::valued(std::string_view key, int64_t value) const {
  if (find(key) != nullptr) return fmt::format("= {}", value);
  return fmt::format("is absent and stands for {}, as in transformers, which", value);
}

double ConfigFields::eps(std::string_view key, std::optional<double> absent) const {
  const double value = absent ? number(key).value_or(*absent) : required_number(key);
  if (value <= 0.0 || value >= 1.0) fail(key, "= {} must be between 0 and 1", value);
  return value;
}

double ConfigFields::dropout(std::string_view key, double absent) const {
  const double value = number(key).value_or(absent);
  if (value < 0.0 || value >= 1.0) {
    fail(key, "= {} must be at least 0 and below 1", value);
  }
  return value;
}

double ConfigFields::initializer_range() const {
  const double value = number("initializer_range").value_or(0.02);
  if (value < 0.0) fail("initializer_range", "must not be negative");
  return value;
}

const OrderedJson* ConfigFields::layer_types(size_t layers) const {
  const OrderedJson* types = find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != layers)) {
    fail("layer_types", "expected a list of num_hidden_layers = {} names, found {}",
         layers, types->is_array() ? counted(std::ssize(*types), "name") : shown(*types));
  }
  return types;
}

std::vector<int64_t> ConfigFields::token_ids(std::string_view key) const {
  const OrderedJson* json = find(key);
  if (!json) return {};
  std::vector<int64_t> out;
  const auto add = [&](const OrderedJson& item) {
    const auto value = whole(item);
    if (!value || *value < -1) {
      fail(key, "expected a token id or a list of them, found {}", shown(*json));
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

bool is_off(const OrderedJson& json) {
  if (json.is_null()) return true;
  if (json.is_boolean()) return !json.get<bool>();
  if (json.is_number()) return json.get<double>() == 0.0;
  if (json.is_string()) return json.get_ref<const std::string&>().empty();
  return json.empty();
}

}  // namespace longhaul::families
