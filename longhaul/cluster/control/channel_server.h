#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/cluster/control/secret.h"

namespace longhaul::cluster {

/// What a hostile or broken peer can cost.
struct ChannelLimits {
  /// A peer that has not proved itself by then is dropped, however it spends the time.
  double handshake_seconds = 5.0;
  /// Connections that have not proved themselves yet. Above it new ones wait in the
  /// kernel's queue, and those older than a second make room.
  size_t max_pending = 256;
  /// Peers that have; above it a new one is dropped.
  size_t max_peers = 4096;
  /// A peer that lets more than this wait to be sent is dropped.
  size_t max_unsent_bytes = size_t{32} << 20;
};

struct ChannelEvent {
  enum class Kind {
    Connected,  ///< a peer has proved that it knows the secret
    Message,
    Lost,  ///< it is gone; its number is never used again
  };
  Kind kind = Kind::Message;
  uint64_t peer = 0;     ///< from 1
  std::string address;   ///< Connected, Lost: "10.77.0.3:41234"
  Json message;          ///< Message
  bool goodbye = false;  ///< Lost: it closed its channel in order
  std::string reason;    ///< Lost: in words
};

/// The supervisor's end of the control channel: any number of Channels, served by one
/// thread that calls poll(). No call but poll() waits, and no peer can make any other
/// wait.
class ChannelServer {
 public:
  /// Listens at the address of an interface ("eth0") or of a name or number that is this
  /// machine's own, and on no other; port 0: any that is free. ConfigError.
  ChannelServer(const Secret& secret, const std::string& interface_or_host, int port = 0,
                const ChannelLimits& limits = {});
  ~ChannelServer();
  ChannelServer(const ChannelServer&) = delete;
  ChannelServer& operator=(const ChannelServer&) = delete;

  /// Where it listens: "10.77.0.1" and the port.
  const std::string& host() const;
  int port() const;

  /// What has happened; waits for at most this long for the first event. Messages of a
  /// peer come in the order in which they were sent, between its Connected and its Lost.
  std::vector<ChannelEvent> poll(double timeout_seconds);
  /// Readable when poll(0) has something to do: for loops that wait on other things too.
  /// Such a loop still calls poll(0) about once a second, for the deadlines.
  int fd() const;

  /// Queues a message and sends what goes at once; false when the peer is gone (its Lost
  /// comes, or came, from poll).
  bool send(uint64_t peer, const Json& message);
  void send_all(const Json& message);
  /// Says goodbye to a peer and forgets it, without a Lost.
  void close(uint64_t peer);
  /// Seconds since the last bytes of a peer; infinity for one that is gone.
  double silent_seconds(uint64_t peer) const;
  /// Every peer's silence begins anew: this process may have slept through their words.
  void forgive_silence();
  std::vector<uint64_t> peers() const;
  /// Connections that have been dropped before they proved themselves, and the last
  /// reason: a sign of somebody who tries.
  uint64_t refused() const;
  const std::string& last_refusal() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
