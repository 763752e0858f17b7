#include "longhaul/base/counted.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/base/text.h"

namespace longhaul {

std::string counted(int64_t number, std::string_view singular, std::string_view plural) {
  std::string text = grouped(number) + " ";
  if (number == 1) return text.append(singular);
  return plural.empty() ? text.append(singular).append("s") : text.append(plural);
}

std::string listed(std::span<const std::string> names, size_t most) {
  const size_t shown = std::min(names.size(), most);
  std::string text = fmt::format("{}", fmt::join(names.first(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace longhaul
