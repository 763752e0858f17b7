#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "longhaul/imports/pickle/pickle.h"
#include "longhaul/imports/pickle/pickle_tree.h"

namespace longhaul::imports {

/// Reads what torch.save wrote, in the zip form or the older stream form, from bytes that
/// lie at `base` of a file; `base` is 0 if the bytes are the whole file. Elements are not
/// read: every storage's `begin` is the file offset of its first byte, and its size has
/// been checked against the file. Throws InputError that names `what`, the offset and the
/// reason. See parse_pickle for what a pickle may hold.
PickleTree read_torch_file(std::span<const std::byte> bytes, uint64_t base,
                           const std::string& what, const PickleLimits& limits = {});

/// Returns whether the bytes begin like one of the two forms.
bool looks_like_torch_file(std::span<const std::byte> bytes);

}  // namespace longhaul::imports
