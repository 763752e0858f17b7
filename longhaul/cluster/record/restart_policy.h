#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "longhaul/cluster/verdict/fault.h"

namespace longhaul::cluster {

/// The limits and delays by which a RestartPolicy decides.
struct RestartRules {
  int64_t max_restarts = 100;  ///< restarts of one job
  int same_fault_limit = 3;    ///< equal faults at one step, in a row
  /// The limit for errors that time may mend. With the delays, this limit is reached
  /// after a quarter of an hour.
  int temporary_fault_limit = 20;
  int node_fault_limit = 3;  ///< faults on one node, in a row, before it is left out
  bool node_faults = true;   ///< false: the platform mends faults of nodes
  double first_delay_seconds = 1.0;  ///< doubles with each fault that follows no progress
  double longest_delay_seconds = 60.0;
};

/// What a RestartPolicy has decided about a fault.
struct Decision {
  bool restart = false;
  double delay_seconds = 0.0;
  bool exclude_node = false;  ///< fault.node is not to be used again
  std::string reason;         ///< why the run stops, for people
  bool used_up = false;       ///< the run stops at a limit, which only a person can mend
};

/// The counts of a job's faults over all of its supervisors, so that no new supervisor
/// begins a crash loop again.
struct RestartCounts {
  int64_t restarts = 0;
  std::optional<Fault> before;  ///< the newest fault
  int same = 0;                 ///< faults like the newest, in a row
  int without_progress = 0;     ///< faults in a row without a step beyond `furthest`
  int64_t furthest = 0;         ///< the furthest step of any fault
  int on_node = 0;              ///< faults in a row on the newest fault's node
  /// A node was left out for temporary errors, and no step came since. A temporary error
  /// that then comes on another node too has its cause in what the nodes share, so that
  /// no second node is left out.
  bool left_out = false;
};

/// Decides after each fault of a run whether and when the workers start again. Has no
/// clock and reads no file.
class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartRules& rules, RestartCounts counts = {})
      : rules_(rules), counts_(std::move(counts)) {}

  Decision decide(const Fault& fault);
  int64_t restarts() const { return counts_.restarts; }
  const RestartCounts& counts() const { return counts_; }

 private:
  bool same_as_before(const Fault& fault) const;

  RestartRules rules_;
  RestartCounts counts_;
};

}  // namespace longhaul::cluster
