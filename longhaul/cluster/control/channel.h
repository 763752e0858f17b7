#pragma once

#include <memory>
#include <optional>
#include <string>

#include "longhaul/base/json.h"
#include "longhaul/cluster/control/secret.h"

namespace longhaul::cluster {

/// The agent's end of the control channel: one authenticated, private connection to a
/// ChannelServer of the same job. Messages are JSON texts of at most 4 MiB
/// (kMaxMessageBytes). One thread at a time.
class Channel {
 public:
  /// Connects and shakes hands, trying again while nobody listens yet or the name has no
  /// address yet, until `deadline_seconds` are over: TemporaryError. InputError at once
  /// where who listens there does not know this job's secret.
  static Channel connect(const std::string& host, int port, const Secret& secret,
                         double deadline_seconds);
  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  /// Closes without waiting; the other side hears of a loss unless close() was called.
  ~Channel();

  /// Hands the whole message to the kernel. TemporaryError when the connection is lost or
  /// takes longer.
  void send(const Json& message, double timeout_seconds = 30.0);
  /// The next message, or nothing within the time; 0 looks only at what is there. Call it
  /// until it gives nothing before waiting on fd(): several messages may come at once.
  /// TemporaryError when the connection was lost, or the other side has said goodbye and
  /// all its messages were taken.
  std::optional<Json> receive(double timeout_seconds);
  /// Says goodbye, so that the other side can tell an end from a loss. Waits for at most
  /// `timeout_seconds` and never throws.
  void close(double timeout_seconds = 1.0);

  /// Readable when something has come; -1 once closed or lost.
  int fd() const;
  bool is_open() const { return fd() >= 0; }
  /// "10.77.0.1:41234": of the other side.
  const std::string& peer() const;

 private:
  struct State;
  explicit Channel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
