#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/counts.h"
#include "longhaul/comm/options.h"
#include "longhaul/comm/transport.h"

namespace longhaul::comm {

/// Posts the messages of one round of a collective, and counts them; long ones are cut.
class Round {
 public:
  Round(Batch& batch, int tag, size_t max_message, Tally tally)
      : batch_(batch), tag_(tag), max_message_(max_message), tally_(tally) {}
  void send(int peer, const std::byte* data, size_t bytes);
  void recv(int peer, std::byte* data, size_t bytes);
  /// A message without content, for the barrier.
  void signal(int to, int from);

 private:
  Batch& batch_;
  int tag_;
  size_t max_message_;
  Tally tally_;
};

/// A collective as a list of rounds: posts round `index` (0, 1, ...); false when the work
/// is done (nothing was posted). A round's messages have all ended before the next call,
/// which does the local work between them.
using Program = std::function<bool(Round& round, int64_t index)>;

struct GroupRank {
  int rank;
  int size;
};

// All arguments were checked by the caller. With one rank each of them only copies.
Program all_reduce_program(GroupRank group, Buffer buffer, ReduceOp op,
                           const CommOptions& options);
Program reduce_scatter_program(GroupRank group, ConstBuffer in, Buffer out, ReduceOp op,
                               const CommOptions& options);
Program all_gather_program(GroupRank group, ConstBuffer in, Buffer out);
Program all_to_all_program(GroupRank group, ConstBuffer in, Buffer out);
Program broadcast_program(GroupRank group, Buffer buffer, int root,
                          const CommOptions& options);
Program barrier_program(GroupRank group);
Program send_recv_program(std::vector<Transfer> transfers);

}  // namespace longhaul::comm
