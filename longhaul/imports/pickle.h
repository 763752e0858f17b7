#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "longhaul/imports/pickle_tree.h"

namespace longhaul::imports {

/// What a pickle may cost. Beyond these: InputError.
struct PickleLimits {
  uint64_t max_bytes = uint64_t{1} << 29;
  uint64_t max_values = 48'000'000;
};

/// Reads a pickle (protocols 0 to 5, as far as torch writes them) as plain data. A pickle
/// is a program; this reader has no way to run one. It knows the instructions that build
/// values, and a short list of names (pickle_names.h); "calling" a name means to apply
/// our own rule for it. Any other name, and any other instruction, is refused.
/// The pickle may be followed by other bytes; `consumed` receives where it ended.
/// InputError names `what`, the byte offset, and the name or instruction.
PickleTree parse_pickle(std::span<const std::byte> bytes, const std::string& what,
                        uint64_t* consumed = nullptr, const PickleLimits& limits = {});

}  // namespace longhaul::imports
