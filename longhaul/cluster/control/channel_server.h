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
  /// A peer that has not proved itself within this time is dropped, whatever it sends.
  double handshake_seconds = 5.0;
  /// The most connections that have not proved themselves yet. At this number new ones
  /// wait in the kernel's queue, and connections older than a second are dropped to make
  /// room.
  size_t max_pending = 256;
  /// The most peers that have proved themselves; a further one is dropped.
  size_t max_peers = 4096;
  /// A peer for which more unsent bytes wait is dropped.
  size_t max_unsent_bytes = size_t{32} << 20;
};

/// What ChannelServer::poll() tells of a peer.
struct ChannelEvent {
  enum class Kind {
    Connected,  ///< a peer has proved that it knows the secret
    Message,
    Lost,  ///< the peer is gone; its number is never used again
  };
  Kind kind = Kind::Message;
  uint64_t peer = 0;         ///< from 1
  std::string address = {};  ///< Connected, Lost: "10.77.0.3:41234"
  Json message = {};
  bool goodbye = false;     ///< Lost: the peer closed its channel in order
  std::string reason = {};  ///< Lost: in words
};

/// The supervisor's end of the control channel: serves any number of Channels in the one
/// thread that calls poll(). Only poll() waits, and no peer can make another peer wait.
class ChannelServer {
 public:
  /// Listens at this address of this machine and at no other; port 0 stands for any free
  /// port. Throws ConfigError if the address or the port cannot be had.
  ChannelServer(const Secret& secret, const std::string& host, int port = 0,
                const ChannelLimits& limits = {});
  ~ChannelServer();

  /// Returns the address at which the server listens: "10.77.0.1".
  const std::string& host() const;
  /// Returns the port at which the server listens.
  int port() const;

  /// Returns what has happened, and waits at most this long for the first event. Messages
  /// of a peer come in the order in which they were sent, between its Connected and its
  /// Lost.
  std::vector<ChannelEvent> poll(double timeout_seconds);
  /// Queues a message and sends what the socket takes at once. Returns false when the
  /// peer is gone; poll() returns, or has returned, its Lost.
  bool send(uint64_t peer, const Json& message);
  void send_all(const Json& message);
  /// Says goodbye to a peer and forgets it, without an event Lost.
  void close(uint64_t peer);
  /// Returns the seconds since the last bytes of a peer; infinity for a peer that is
  /// gone.
  double silent_seconds(uint64_t peer) const;
  /// Counts every peer's silence anew, after this process itself may have slept.
  void forgive_silence();
  std::vector<uint64_t> peers() const;
  /// Returns how many connections were dropped before they proved themselves. Such
  /// connections are signs of an intruder.
  uint64_t refused() const;
  /// Returns why the last refused connection was dropped.
  const std::string& last_refusal() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
