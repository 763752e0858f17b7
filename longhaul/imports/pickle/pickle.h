#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "longhaul/imports/pickle/pickle_tree.h"

namespace longhaul::imports {

/// Limits of a pickle, beyond which InputError is thrown.
struct PickleLimits {
  uint64_t max_bytes = uint64_t{1} << 29;
  uint64_t max_values = 48'000'000;
};

/// Reads a pickle (protocols 0 to 5, as far as torch writes them) as plain data. A pickle
/// is a program, and this reader cannot run a program. It knows the instructions that
/// build values and a short list of names (pickle_names.h). "Calling" a name applies our
/// own rule for that name. Any other name or instruction is refused.
///
/// Other bytes may follow the pickle, and `consumed` receives where the pickle ended.
/// Throws InputError that names `what`, the byte offset, and the name or instruction.
PickleTree parse_pickle(std::span<const std::byte> bytes, const std::string& what,
                        uint64_t* consumed = nullptr, const PickleLimits& limits = {});

}  // namespace longhaul::imports
