#pragma once

#include <optional>
#include <span>
#include <string>

#include "tests/accelerator/streams.h"

namespace longhaul::softdev {

/// Bytes that an operation reads or writes, by the address that tensors have.
struct Use {
  const void* data = nullptr;
  size_t bytes = 0;
  bool writes = false;
  /// Bytes that are moved, if they are not all bytes of the range. Examples are a view
  /// with strides, a table of which some rows are read, and a tensor that is read and
  /// written.
  std::optional<size_t> moved = {};
};

/// Counts operation `name`, which comes next in `stream`, and reports a use that is not
/// ordered behind an earlier use of the same bytes (a race). Memory that is neither the
/// device's nor pinned is not checked.
void note_operation(Stream& stream, const std::string& name, std::span<const Use> uses);

/// Counts and checks operation `name` as note_operation() does, for a kernel, which runs
/// on the calling thread: returns when everything that is queued before it in the stream
/// has run.
void begin_kernel(Stream& stream, const std::string& name, std::span<const Use> uses);

/// Notes that the newest operation of the stream has made memory for a result and written
/// it.
void note_result(Stream& stream, const std::string& name, const Use& use);

}  // namespace longhaul::softdev
