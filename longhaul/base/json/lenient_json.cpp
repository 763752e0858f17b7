#include "longhaul/base/json/lenient_json.h"

#include <cmath>

namespace longhaul {

double number_at(const Json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return otherwise;
  const auto number = found->get<double>();
  return std::isfinite(number) ? number : otherwise;
}

int64_t integer_at(const Json& object, const char* key, int64_t otherwise) {
  const double number = number_at(object, key, static_cast<double>(otherwise));
  return std::abs(number) <= 9e15 ? static_cast<int64_t>(number) : otherwise;
}

std::string_view text_at(const Json& object, const char* key,
                         std::string_view otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return otherwise;
  return found->get_ref<const std::string&>();
}

std::vector<const Json*> objects_in(const Json& list) {
  std::vector<const Json*> objects;
  if (!list.is_array()) return objects;
  for (const Json& item : list) {
    if (item.is_object()) objects.push_back(&item);
  }
  return objects;
}

}  // namespace longhaul
