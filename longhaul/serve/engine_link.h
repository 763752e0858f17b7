#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/serve/protocol.h"

namespace longhaul::serve {

/// The end of the socket in longhaul-serve: hands sequences to rank 0, and events to the
/// requests that wait for them. Any thread may use it.
class EngineLink {
 public:
  explicit EngineLink(int socket);
  /// Requests must have ended.
  ~EngineLink();
  EngineLink(const EngineLink&) = delete;
  EngineLink& operator=(const EngineLink&) = delete;

  /// The sequences of one request. What has not ended is cancelled with it.
  class Call {
   public:
    /// Throws TemporaryError if too much waits already, and InputError if the sequences
    /// alone are too much.
    Call(EngineLink& link, std::vector<Sequence> sequences);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    /// Waits at most `seconds` and returns the index of a sequence and an event of it.
    /// Throws TemporaryError if rank 0 has ended.
    std::optional<std::pair<size_t, Json>> next(double seconds);
    /// Ends a sequence of which nothing more is wanted.
    void cancel(size_t index);

   private:
    friend class EngineLink;
    EngineLink& link_;
    const int64_t numbers_;            ///< of all sequences
    std::map<uint64_t, size_t> open_;  ///< the index of each number that has not ended
    std::deque<std::pair<size_t, Json>> events_;
    std::condition_variable changed_;
  };

  /// Waits until rank 0 has closed the socket.
  void await_end();

 private:
  void receive();
  void send(const Json& message);

  int socket_;
  std::mutex sending_;
  std::mutex mutex_;  ///< guards what follows, and the calls
  std::condition_variable over_;
  std::map<uint64_t, Call*> calls_;  ///< by the numbers of their sequences
  int64_t numbers_ = 0;              ///< of all calls
  uint64_t next_number_ = 1;
  bool ended_ = false;
  std::thread receiver_;
};

}  // namespace longhaul::serve
