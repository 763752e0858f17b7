#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/entry.h"
#include "longhaul/comm/transport.h"

namespace longhaul::comm {

/// Posts the messages of one round of an operation and counts their bytes. Cuts messages
/// that are longer than `max_message`.
class Round {
 public:
  Round(Batch& batch, int tag, size_t max_message, Tally tally)
      : batch_(batch), tag_(tag), max_message_(max_message), tally_(tally) {}
  void send(int peer, const std::byte* data, size_t bytes);
  void recv(int peer, std::byte* data, size_t bytes);
  /// Posts a message without content in both directions, for the barrier.
  void signal(int to, int from);

 private:
  Batch& batch_;
  int tag_;
  size_t max_message_;
  Tally tally_;
};

/// An operation as a list of rounds. A call posts the messages of round `index` (0, 1,
/// ...) and returns true, or returns false when the operation is done and nothing was
/// posted. All messages of a round have ended before the next call, which also does the
/// local work between the two rounds.
using Program = std::function<bool(Round& round, int64_t index)>;

/// Returns the rounds of an operation whose arguments were checked. In a group of one
/// rank an operation only copies.
Program program_of(Request request, GroupRank group, const CommOptions& options);

}  // namespace longhaul::comm
