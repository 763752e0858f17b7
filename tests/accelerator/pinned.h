#pragma once

#include <cstddef>
#include <vector>

#include "tests/accelerator/streams.h"

namespace longhaul::softdev {

// Copies between pinned memory and the device that the host does not wait for. The host
// may use the pinned memory once it has waited for something behind the copy. All under
// state_mutex().

/// The newest operation of `stream` writes `bytes` to pinned memory. They are there once
/// the host has waited; until then it holds 0xFF.
void write_pinned_later(const Stream& stream, std::byte* pinned,
                        std::vector<std::byte> bytes);
/// The newest operation of `stream` reads pinned memory: reported where the host changes
/// it before it has waited.
void read_pinned_later(const Stream& stream, const std::byte* pinned, size_t bytes);
/// The device uses pinned memory: what is under way there, and ordered before, takes
/// place.
void use_pinned_now(const std::byte* pinned, size_t bytes);
/// Sets the calls of streams.h and memory.h.
void watch_pinned_memory();

}  // namespace longhaul::softdev
