#pragma once

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
/// failure also loses what was trained while the newest save was written.
double expected_goodput(const FailureCosts& costs, double interval_s);

/// Returns the seconds between two saves with which expected_goodput is highest: Daly's
/// estimate, equation 37, for which Young's sqrt(2 * stall * between) is the first term.
double best_interval(const FailureCosts& costs);

}  // namespace longhaul::plan
