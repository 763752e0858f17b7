#pragma once

#include <string>

namespace longhaul::apps {

/// "1%" or "0.01" of the documents: 0 <= share < 1. InputError names the option.
double parse_share(const std::string& option, const std::string& text);

}  // namespace longhaul::apps
