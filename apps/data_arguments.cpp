#include "apps/data_arguments.h"

#include <fmt/format.h>

#include <charconv>

#include "longhaul/base/error.h"

namespace longhaul::apps {

double parse_share(const std::string& option, const std::string& text) {
  const bool percent = !text.empty() && text.back() == '%';
  const char* const end = text.data() + text.size() - (percent ? 1 : 0);
  double value = -1.0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (percent) value /= 100.0;
  if (error != std::errc() || stop != end || !(value >= 0.0 && value < 1.0)) {
    throw InputError("data", fmt::format("{} '{}' is not a share of the documents; write "
                                         "for example 1% or 0.01",
                                         option, text));
  }
  return value;
}

}  // namespace longhaul::apps
