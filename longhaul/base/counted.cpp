#include "longhaul/base/counted.h"

#include "longhaul/base/text.h"

namespace longhaul {

std::string counted(int64_t number, std::string_view singular, std::string_view plural) {
  std::string text = grouped(number) + " ";
  if (number == 1) return text.append(singular);
  return plural.empty() ? text.append(singular).append("s") : text.append(plural);
}

}  // namespace longhaul
