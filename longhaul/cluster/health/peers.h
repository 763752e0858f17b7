#pragma once

#include <set>
#include <string>
#include <vector>

#include "longhaul/cluster/control/socket.h"
#include "longhaul/cluster/health/health.h"

namespace longhaul::cluster {

/// The name of the health check in which a node tests its connections to other nodes.
inline constexpr const char* kPeersCheck = "peers";
/// A node tests its connections to at most this many nodes: those that follow it in the
/// order of names.
inline constexpr size_t kMostPeers = 64;

/// A port at which other nodes of the job find out whether they reach this one. Nothing
/// is read from a connection.
class PeerDoor {
 public:
  /// Opens the door at this node's address on the way to `host`. Throws TemporaryError,
  /// ConfigError.
  explicit PeerDoor(const std::string& host);

  /// Returns where the door is, as the other nodes need to know it.
  PeerNode at(const std::string& node) const;
  /// Closes the connections that have come. The kernel accepts connections by itself, so
  /// it suffices to call this now and then.
  void turn_away() const;

 private:
  Descriptor door_;
  SocketAddress address_;
};

/// Tries to connect to all these nodes at once, for `seconds` at most. Both a connection
/// and a refusal show that packets pass in both directions. The check fails if a node is
/// not reached; its value "unreached" lists those nodes.
HealthCheck check_peers(const std::vector<PeerNode>& peers, double seconds);

/// Judges what the nodes say of the connections between them. Leaves the check as failed
/// only in the reports of nodes at fault, and adds a report if such a node has none. At
/// fault is the node that has lost its connections to most others. If two nodes have lost
/// each other, it is one of `left_out`, else one that is not `here`, else the later name.
/// If half of the nodes or more would be at fault, none is, and the result says so: then
/// something between the nodes refuses such connections.
std::vector<std::string> judge_peers(std::vector<HealthReport>& reports,
                                     const std::set<std::string>& left_out,
                                     const std::string& here);

}  // namespace longhaul::cluster
