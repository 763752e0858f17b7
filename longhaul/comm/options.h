#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>

#include "longhaul/layout/sent_bytes.h"

namespace longhaul::comm {

/// Limits of a group. Every communicator that is split from the group inherits them.
struct CommOptions {
  /// A wait for an operation that lasts longer throws TemporaryError.
  double deadline_seconds = 600.0;
  /// Is called while a rank waits. A text that is not empty says why the launcher is
  /// ending the job (a rank died); the wait then throws TemporaryError with this text and
  /// the operation's name.
  std::function<std::string()> job_ends;
  /// Is called while a rank waits. While it returns true, hurry_seconds limit each wait
  /// as well: a rank that was asked to stop does not wait long for a rank that is dead.
  std::function<bool()> hurries;
  double hurry_seconds = 60.0;
  /// Memory that a reduction may take for received parts, in bytes for each operation.
  size_t scratch_bytes = size_t{4} << 20;
  /// Longer messages are cut, because counts of MPI have 32 bits.
  size_t max_message_bytes = size_t{1} << 30;
  /// A broadcast of a buffer of at most this many bytes goes through a tree, and so does
  /// an all-reduce of so many bytes of 64-bit numbers.
  size_t tree_bytes = static_cast<size_t>(layout::kTreeBytes);

  /// Returns the seconds that a wait may last now.
  double limit_seconds() const {
    return hurries && hurries() ? std::min(hurry_seconds, deadline_seconds)
                                : deadline_seconds;
  }
};

}  // namespace longhaul::comm
