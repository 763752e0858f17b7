#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longhaul {

/// Returns "1 rank", "2 ranks", "1,359 tokens". `plural` is given if the plural is not
/// the singular with an s.
std::string counted(int64_t number, std::string_view singular,
                    std::string_view plural = {});

/// Returns "a, b and 3 more": at most `most` of the names, and the number of the others.
std::string listed(std::span<const std::string> names, size_t most);

}  // namespace longhaul
