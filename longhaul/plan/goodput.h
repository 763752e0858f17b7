#pragma once

#include <cstdint>

namespace longhaul::plan {

/// What failures and saves cost a run.
struct FailureCosts {
  double between_s = 0.0;  ///< mean seconds between failures of the whole run
  double stall_s = 0.0;    ///< seconds for which a save holds training up
  double write_s = 0.0;    ///< seconds until a save that goes on beside training is done
  double restart_s = 0.0;  ///< seconds from a failure until training goes on
};

/// Returns the share of the time in which a run makes progress that it keeps, with a save
/// after every `interval_s` seconds of training. Failures are independent of each other
/// (an exponential distribution), also during saves and restarts: Daly, "A higher order
/// estimate of the optimum checkpoint interval for restart dumps", 2006, equation 20. A
/// failure also loses what was trained while the newest save was written. A save waits
/// until the one before is written.
double expected_goodput(const FailureCosts& costs, double interval_s);

/// Returns the seconds between two saves with which expected_goodput is highest: Daly's
/// estimate, equation 37, for which Young's sqrt(2 * stall * between) is the first term.
/// Saves that would wait for each other are no gain.
double best_interval(const FailureCosts& costs);

/// Returns for how many seconds a run waits for a node, for each other second of the run.
/// A failure takes a node away, in whose place another node comes after `replace_s`
/// seconds on average. With `spares` nodes beside its own the run waits only while more
/// nodes than these are away. How often it does so is Erlang's loss formula, 1917. Spares
/// do not fail, and nothing fails while the run waits.
double waits_for_nodes(double between_s, double replace_s, int64_t spares);

/// Returns the number of spares, at most `nodes`, with which a run on `nodes` nodes
/// trains longest for each hour of a node, those of spares included.
int64_t best_spares(double between_s, double replace_s, int64_t nodes);

}  // namespace longhaul::plan
