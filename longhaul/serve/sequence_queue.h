#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "longhaul/serve/protocol.h"

namespace longhaul::serve {

/// How much is computed together.
struct BatchLimits {
  int64_t sequences = 32;
  /// The most positions of all sequences, each with the longest prompt and the most
  /// tokens behind it. One sequence alone may have more.
  int64_t positions = 32768;
};

/// Takes as many of the sequences that have waited longest as fit into one batch, and
/// removes them from `waiting`. All of a batch are continued by more than one id, or none
/// is, since only the former keep keys and values.
std::vector<Sequence> take_batch(std::deque<Sequence>& waiting,
                                 const BatchLimits& limits);

/// Rank 0's end of the socket: the sequences that clients want. A thread of its own
/// receives them; the other calls come from one thread.
class SequenceQueue {
 public:
  /// Takes the sequences from `socket`, which stays open as long as this object.
  explicit SequenceQueue(int socket);
  ~SequenceQueue();
  SequenceQueue(const SequenceQueue&) = delete;
  SequenceQueue& operator=(const SequenceQueue&) = delete;

  /// Waits at most `seconds` for a sequence, and returns the next batch. Throws
  /// TemporaryError if longhaul-serve has ended.
  std::vector<Sequence> take(const BatchLimits& limits, double seconds);
  /// Returns whether nobody waits for a sequence that was taken any more.
  bool is_cancelled(uint64_t number);
  /// Sends events. If longhaul-serve has ended, the next take() says so.
  void tell(const Json& events);

 private:
  void receive();

  int socket_;
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::deque<Sequence> waiting_;
  std::set<uint64_t> cancelled_;
  bool ended_ = false;
  std::thread receiver_;
};

}  // namespace longhaul::serve
