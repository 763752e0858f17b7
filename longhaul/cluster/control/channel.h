#pragma once

#include <memory>
#include <optional>
#include <string>

#include "longhaul/base/json.h"
#include "longhaul/cluster/control/secret.h"

namespace longhaul::cluster {

/// The agent's end of the control channel: one authenticated and encrypted connection to
/// the ChannelServer of the same job. Messages are JSON texts of at most 4 MiB
/// (kMaxMessageBytes). Calls come from one thread at a time.
class Channel {
 public:
  /// Connects and shakes hands. Tries again while nobody listens or the name has no
  /// address, and throws TemporaryError when `deadline_seconds` are over. Throws
  /// InputError at once if the listener does not know this job's secret.
  static Channel connect(const std::string& host, int port, const Secret& secret,
                         double deadline_seconds);
  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  /// Closes without waiting. Without close() the other side sees a lost connection.
  ~Channel();

  /// Hands the whole message to the kernel. Throws TemporaryError when the connection is
  /// lost, or when the message takes longer than the timeout.
  void send(const Json& message, double timeout_seconds = 30.0);
  /// Returns the next message, or nothing when the time is over; with 0 it does not wait.
  /// Call it until it returns nothing before waiting on fd(), since several messages may
  /// come at once. Throws TemporaryError when the connection is lost, or when the other
  /// side has said goodbye and all its messages were taken.
  std::optional<Json> receive(double timeout_seconds);
  /// Says goodbye, so that the other side can tell an end from a loss. Waits at most
  /// `timeout_seconds` and never throws.
  void close(double timeout_seconds = 1.0);

  /// Returns a descriptor that is readable when bytes have come; -1 once closed or lost.
  int fd() const;
  bool is_open() const { return fd() >= 0; }

 private:
  struct State;
  explicit Channel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
