#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longhaul {

/// Returns "1 rank", "2 ranks", "1,359 tokens". `plural` is given where an s does not
/// make it.
std::string counted(int64_t number, std::string_view singular,
                    std::string_view plural = {});

}  // namespace longhaul
