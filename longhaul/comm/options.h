#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>

#include "longhaul/layout/sent_bytes.h"

namespace longhaul::comm {

/// Limits of a process group; every communicator split from it inherits them.
struct CommOptions {
  /// An operation that is waited for longer than this throws TemporaryError.
  double deadline_seconds = 600.0;
  /// Asked while a rank waits: a text says that the launcher is ending the job (a rank
  /// died), and the wait throws TemporaryError with it, naming the operation.
  std::function<std::string()> job_ends;
  /// Asked while a rank waits: while it says so, hurry_seconds bound each wait as well. A
  /// rank that was asked to stop does not wait long for one that is dead.
  std::function<bool()> hurries;
  double hurry_seconds = 60.0;
  /// Memory for parts that wait to be added, per operation under way.
  size_t scratch_bytes = size_t{4} << 20;
  /// Longer messages are cut: MPI counts are 32-bit.
  size_t max_message_bytes = size_t{1} << 30;
  /// Up to this many bytes gathered, a reduction is one round: gather all, add at home.
  size_t one_round_bytes = static_cast<size_t>(kOneRoundBytes);

  /// Seconds that a wait may last now.
  double limit_seconds() const {
    return hurries && hurries() ? std::min(hurry_seconds, deadline_seconds)
                                : deadline_seconds;
  }
};

}  // namespace longhaul::comm
