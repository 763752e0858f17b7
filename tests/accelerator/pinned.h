#pragma once

#include <cstddef>
#include <vector>

#include "tests/accelerator/streams.h"

namespace longhaul::softdev {

// Copies between pinned memory and the device for which the host does not wait. The host
// may use the pinned memory when it has waited for something behind the copy. All
// functions are called under state_mutex().

/// Notes that the newest operation of `stream` writes `bytes` to pinned memory. The bytes
/// arrive when the host has waited; until then the memory holds 0xFF.
void write_pinned_later(const Stream& stream, std::byte* pinned,
                        std::vector<std::byte> bytes);
/// Notes that the newest operation of `stream` reads pinned memory. A change by the host
/// before it has waited is reported.
void read_pinned_later(const Stream& stream, const std::byte* pinned, size_t bytes);
/// Tells that the device uses pinned memory: copies under way there that are ordered
/// before the use take place.
void use_pinned_now(const std::byte* pinned, size_t bytes);
/// Registers the functions that streams.h and memory.h call.
void watch_pinned_memory();

}  // namespace longhaul::softdev
