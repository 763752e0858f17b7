#include "longhaul/plan/run_outlook.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longhaul::plan {
namespace {

constexpr double kHour = 3600.0;

bool on_cpu(const Cluster& cluster) { return cluster.profile.device == "cpu"; }

/// Returns the ranks of the node that has most.
int64_t ranks_of_a_node(const Cluster& cluster) {
  return std::min(cluster.ranks, cluster.machine.node_ranks);
}

/// Returns the bytes of a checkpoint that so many ranks have.
double state_of(const Cluster& cluster, int64_t ranks) {
  return cluster.checkpoint_bytes * static_cast<double>(ranks) /
         static_cast<double>(cluster.ranks);
}

/// Returns the seconds between saves; 0 where it is not known.
double interval_of(const CheckpointSection& checkpoint, double step_s, int64_t steps) {
  double seconds = std::numeric_limits<double>::infinity();
  if (checkpoint.every > 0) seconds = static_cast<double>(checkpoint.every) * step_s;
  if (checkpoint.every_minutes > 0.0) {
    seconds = std::min(seconds, 60.0 * checkpoint.every_minutes);
  }
  if (steps > 0) seconds = std::min(seconds, static_cast<double>(steps) * step_s);
  return std::isinf(seconds) ? 0.0 : seconds;
}

/// Returns what spares lead to, where `outlook` is that of a run which never waits for a
/// node.
SpareOutlook with_spares(const Cluster& cluster, const FailureOutlook& outlook,
                         double replace_s, int64_t spares) {
  const double waits = waits_for_nodes(outlook.costs.between_s, replace_s, spares);
  SpareOutlook with;
  with.spares = spares;
  with.waits = waits / (1.0 + waits);
  with.goodput = outlook.goodput * (1.0 - with.waits);
  with.per_node = with.goodput * static_cast<double>(cluster.nodes) /
                  static_cast<double>(cluster.nodes + spares);
  return with;
}

}  // namespace

HostMemory host_memory(const Cluster& cluster, double rank_bytes) {
  const int64_t ranks = ranks_of_a_node(cluster);
  const double state = state_of(cluster, ranks);
  HostMemory memory;
  if (on_cpu(cluster)) memory.ranks = rank_bytes * static_cast<double>(ranks);
  if (cluster.config.checkpoint.async_ || !on_cpu(cluster)) memory.saves = state;
  if (cluster.config.resilience.peer_memory_every > 0) {
    const int64_t neighbours = std::min(ranks, cluster.ranks - ranks);
    memory.peers = 2.0 * (state + state_of(cluster, neighbours));
    // A device's state passes through a copy of its own.
    if (!on_cpu(cluster)) memory.peers += state;
  }
  return memory;
}

SaveTimes save_times(const Cluster& cluster) {
  SaveTimes times;
  const NodeProfile& node = cluster.profile.node;
  if (node.disk_bytes_per_s > 0.0) {
    times.write = state_of(cluster, ranks_of_a_node(cluster)) / node.disk_bytes_per_s;
    times.read = times.write;
  }
  if (node.store_bytes_per_s > 0.0) {
    times.mirror = state_of(cluster, ranks_of_a_node(cluster)) / node.store_bytes_per_s;
  }
  times.stall = times.write;
  // A copy within a CPU's memory reads and writes.
  const double copy =
      on_cpu(cluster) ? cluster.machine.memory / 2.0 : node.copy_bytes_per_s;
  if (cluster.config.checkpoint.async_ && copy > 0.0) {
    times.stall = state_of(cluster, 1) / copy;
    times.waits = false;
  }
  return times;
}

RunTotals totals_of(const Cluster& cluster, double seconds) {
  const NodeProfile& node = cluster.profile.node;
  RunTotals totals;
  totals.seconds = seconds;
  const double hours = seconds / kHour;
  totals.node_hours = hours * static_cast<double>(cluster.nodes + cluster.spares);
  totals.kilowatt_hours =
      hours * static_cast<double>(cluster.nodes) * node.watts / 1000.0;
  totals.money = totals.node_hours * node.price_per_hour;
  return totals;
}

std::optional<FailureOutlook> failure_outlook(const Cluster& cluster,
                                              const NodeFailures& failures, double step_s,
                                              int64_t steps) {
  const SaveTimes times = save_times(cluster);
  FailureOutlook outlook;
  outlook.interval_s = interval_of(cluster.config.checkpoint, step_s, steps);
  if (!times.write || !times.stall || outlook.interval_s == 0.0) return {};
  outlook.node_hours = failures.node_hours;
  FailureCosts& costs = outlook.costs;
  costs.between_s = failures.node_hours * kHour / static_cast<double>(cluster.nodes);
  costs.stall_s = *times.stall;
  costs.write_s = times.waits ? 0.0 : *times.write;
  costs.restart_s = failures.restart_s + *times.read;
  outlook.goodput = expected_goodput(costs, outlook.interval_s);
  outlook.best_interval_s = best_interval(costs);
  const int64_t most = steps > 0 ? steps : std::numeric_limits<int64_t>::max();
  outlook.best_steps =
      std::clamp<int64_t>(std::llround(outlook.best_interval_s / step_s), 1, most);
  outlook.best_goodput =
      expected_goodput(costs, static_cast<double>(outlook.best_steps) * step_s);
  if (!failures.replace_s) return outlook;
  const int64_t best = best_spares(costs.between_s, *failures.replace_s, cluster.nodes);
  outlook.best_spares = with_spares(cluster, outlook, *failures.replace_s, best);
  outlook.spares = with_spares(cluster, outlook, *failures.replace_s, cluster.spares);
  outlook.goodput *= 1.0 - outlook.spares->waits;
  outlook.best_goodput *= 1.0 - outlook.spares->waits;
  return outlook;
}

}  // namespace longhaul::plan
