#pragma once

#include <vector>

#include "longhaul/config/hardware_profile.h"
#include "longhaul/layout/groups.h"
#include "longhaul/layout/traffic.h"

namespace longhaul::plan {

/// The measured rate of products of experts that have so many rows each.
struct GroupedRate {
  double rows = 0.0;
  double rate = 0.0;  ///< FLOP/s, forward and backward together
};

/// The rates of one rank's device and of its links, from a hardware profile.
struct Machine {
  double products = 0.0;   ///< FLOP/s of dense products in the compute dtype
  double attention = 0.0;  ///< FLOP/s of attention's forward and backward
  double memory = 0.0;     ///< bytes a second, read and written
  double peak = 0.0;       ///< FLOP/s that MFU relates to
  int64_t node_ranks = 0;  ///< ranks of a node
  LinkProfile inside;      ///< of a rank to the ranks of its node
  LinkProfile between;     ///< of a rank to other nodes, where all ranks of a node send
  std::vector<ExchangeProfile> exchanges = {};  ///< measured operations of groups
  std::vector<GroupedRate> grouped_rates = {};  ///< by rows, ascending

  /// Returns the rate of products of experts with so many rows each. Between two
  /// measurements the rate changes evenly with the logarithm of the rows. Fewer or more
  /// rows have the rate of the nearest measurement. Without a measurement the rate is
  /// that of dense products.
  double grouped(double rows) const;
};

/// Takes the rates from a profile. A measured rate counts; where there is none, the peak
/// times the profile's efficiency does. Throws ConfigError that names the file `name`,
/// the missing figure, and what to add: links are needed for several ranks, those between
/// nodes for several nodes.
Machine machine_of(const HardwareProfile& profile, std::string_view name, bool bf16,
                   int64_t ranks, int64_t node_ranks);

/// A group of ranks that exchange data, and its place on the nodes.
struct GroupSpread {
  int64_t ranks = 1;
  int64_t on_node = 1;  ///< ranks of the group on one node, the rank itself included
};
/// Returns how the group of this kind that `rank` is in lies on nodes of `node_ranks`
/// neighbouring ranks.
GroupSpread spread_of(const layout::Groups& groups, layout::GroupKind kind, int rank,
                      int64_t node_ranks);

/// Returns the seconds that the operations of a line take on one rank of a group. Where
/// the operation was measured over as many ranks, with as many of them on a node, the
/// measured rate and latency count. The rest is for other operations.
///
/// Rings pass every byte to a neighbour. A group's ring leaves each node once, and the
/// ranks of a node share its way out: a group that has `on_node` of the node's ranks has
/// as many ranks' part of it. Rows of experts go to each rank directly, so that the share
/// of the ranks on other nodes leaves the node. Each operation waits for the latency of
/// its messages. In a ring there is one after the other for each other rank (Thakur,
/// Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
/// 2005). There is one between neighbours or where rows go directly.
double seconds_of(const Machine& machine, const GroupSpread& group,
                  const layout::TrafficLine& line);

}  // namespace longhaul::plan
