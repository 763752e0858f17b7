#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/cluster/verdict/fault.h"

namespace longhaul::cluster {

struct RestartRules {
  int64_t max_restarts = 100;  ///< of one job
  int same_fault_limit = 3;    ///< at the same step, in a row
  /// The same for errors that time may mend: with the delays a quarter of an hour.
  int temporary_fault_limit = 20;
  int node_fault_limit = 3;  ///< faults on one node, in a row, before it is left out
  bool node_faults = true;   ///< false: somebody else mends them
  double first_delay_seconds = 1.0;  ///< doubles with each fault that follows no progress
  double longest_delay_seconds = 60.0;
};

struct Decision {
  bool restart = false;
  double delay_seconds = 0.0;
  bool exclude_node = false;  ///< fault.node is not to be used again
  std::string reason;         ///< why it stops, for people
  bool used_up = false;       ///< it stops for a bound: only a person can mend that
};

/// What the faults of a job have come to: over all of its supervisors, so that none of
/// them begins a crash loop anew.
struct RestartCounts {
  int64_t restarts = 0;
  std::optional<Fault> before;  ///< the newest
  int same = 0;                 ///< faults like the newest, in a row
  int without_progress = 0;     ///< faults in a row of which none came further
  int64_t furthest = 0;
  int on_node = 0;  ///< faults in a row on the newest fault's node
};

/// Decides after each fault of a run. Pure: no clock, no files.
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
