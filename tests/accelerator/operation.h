#pragma once

#include <optional>
#include <span>
#include <string>

#include "tests/accelerator/streams.h"

namespace longhaul::softdev {

/// Bytes that an operation reads or writes, by the address that tensors know.
struct Use {
  const void* data = nullptr;
  size_t bytes = 0;
  bool writes = false;
  /// That go through, where those are not all: of a view with strides, a table of which
  /// some rows are read, or a tensor that is read and written.
  std::optional<size_t> moved = {};
};

/// `name` comes next in `stream`: counts it, and reports a use that is not behind an
/// earlier one of the same bytes (a race). Memory that is neither the device's nor pinned
/// is not looked at.
void note_operation(Stream& stream, const std::string& name, std::span<const Use> uses);

/// The same for a kernel, which is carried out at once: returns when all that is queued
/// before it in the stream has been.
void begin_kernel(Stream& stream, const std::string& name, std::span<const Use> uses);

/// A result that the newest operation of the stream made memory for: its own write.
void note_result(Stream& stream, const std::string& name, const Use& use);

}  // namespace longhaul::softdev
