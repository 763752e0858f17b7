#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/config/hardware_profile.h"
#include "longhaul/config/run_config.h"
#include "longhaul/plan/goodput.h"
#include "longhaul/plan/machine.h"

namespace longhaul::plan {

/// Bytes of the memory of a node.
struct HostMemory {
  double ranks = 0.0;  ///< what its ranks hold, where they compute on CPUs
  double saves = 0.0;  ///< copies of the state that saves are written from
  double peers = 0.0;  ///< states of its ranks and of a neighbour's, twice
  double all() const { return ranks + saves + peers; }
};

/// The seconds that a checkpoint takes. Absent: a rate of the profile is not known.
struct SaveTimes {
  std::optional<double> write;  ///< nodes write beside each other; the fullest one counts
  std::optional<double> read;
  /// For how long training waits: for the copy to the memory of the node, or without
  /// checkpoint.async, and where the copy's rate is not known, for the whole save.
  std::optional<double> stall;
  bool waits = true;             ///< for the whole save
  std::optional<double> mirror;  ///< a copy to an object store, beside training
};

/// A cluster of equal nodes, and the run on it. The ranks fill one node after the other.
struct Cluster {
  const RunConfig& config;
  const HardwareProfile& profile;
  const Machine& machine;
  int64_t ranks = 0;
  int64_t nodes = 0;
  double checkpoint_bytes = 0.0;
  int64_t spares = 0;  ///< nodes that wait to take the place of a lost node
};

/// Returns what the node holds that has most ranks. `rank_bytes` is what each rank holds.
/// Saves are written from the state itself where it is on a CPU and checkpoint.async is
/// off. With resilience.peer_memory_every a node keeps two states of its own ranks, and
/// of those of a neighbour where there are several nodes.
HostMemory host_memory(const Cluster& cluster, double rank_bytes);

/// Returns the times of a checkpoint of which each rank writes and reads an equal part.
SaveTimes save_times(const Cluster& cluster);

/// What a run takes in all.
struct RunTotals {
  double seconds = 0.0;
  double node_hours = 0.0;      ///< with those of spares
  double kilowatt_hours = 0.0;  ///< of nodes that train; 0: a node's power is not known
  double money = 0.0;           ///< 0: no price
};
/// Returns what so many seconds of all nodes take.
RunTotals totals_of(const Cluster& cluster, double seconds);

/// How nodes fail, and what follows.
struct NodeFailures {
  double node_hours = 0.0;  ///< mean hours of one node between failures
  /// Seconds from a failure until training goes on, where nodes are there. The read of
  /// the checkpoint comes on top.
  double restart_s = 0.0;
  /// Mean seconds until another node is there for a lost one; absent: at once.
  std::optional<double> replace_s;
};

/// A number of spares, and what it leads to.
struct SpareOutlook {
  int64_t spares = 0;
  double waits = 0.0;     ///< share of the time in which the run waits for a node
  double goodput = 0.0;   ///< share of the time that the run keeps
  double per_node = 0.0;  ///< the same of all nodes' time, with the time of spares
};

/// A run whose nodes fail.
struct FailureOutlook {
  double node_hours = 0.0;  ///< mean hours of one node between failures
  FailureCosts costs;
  double interval_s = 0.0;  ///< between saves as the run is configured
  double goodput = 0.0;     ///< share of the time that the run keeps
  double best_interval_s = 0.0;
  int64_t best_steps = 1;  ///< the whole steps next to it
  double best_goodput = 0.0;
  /// With the cluster's spares, and with as many as per_node is highest with; absent
  /// where lost nodes are replaced at once.
  std::optional<SpareOutlook> spares, best_spares;
};

/// Mean node hours between failures of published clusters, the lowest and the highest:
/// docs/planning.md names them.
inline constexpr double kFewestFailureHours = 1000.0;
inline constexpr double kMostFailureHours = 6300.0;

/// Returns the outlook of a run with steps of `step_s` seconds. `steps` is 0 where the
/// run's length is not known. Returns nothing where the times of a checkpoint are not
/// known, or where a run of unknown length saves at its end only.
std::optional<FailureOutlook> failure_outlook(const Cluster& cluster,
                                              const NodeFailures& failures, double step_s,
                                              int64_t steps);

}  // namespace longhaul::plan
