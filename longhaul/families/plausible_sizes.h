#pragma once

#include <cstdint>

namespace longhaul::families {

// Larger sizes are typing errors or attacks. Products of these limits still fit 64 bits.
inline constexpr int64_t kMaxWidth = int64_t{1} << 22;
inline constexpr int64_t kMaxLayers = int64_t{1} << 14;
inline constexpr int64_t kMaxVocab = int64_t{1} << 30;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;

}  // namespace longhaul::families
