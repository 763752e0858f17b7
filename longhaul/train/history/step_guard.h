#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/run_config.h"

namespace longhaul::train {

/// What judging steps needs to know of earlier ones. Part of every checkpoint, so that a
/// run that goes on judges as one that never stopped.
struct GuardState {
  /// Of the last good steps, the oldest first, equally many.
  std::vector<double> losses;
  std::vector<double> norms;
  /// Bad ones among the last steps, in the order in which they came; a rollback does not
  /// take them out.
  std::vector<int64_t> bad_steps;
  int64_t rollbacks = 0;  ///< of the run

  Json to_json() const;
  /// Json::exception where it is no such state.
  static GuardState from_json(const Json& json);
  bool operator==(const GuardState&) const = default;
};

/// What is to become of a step whose gradients are there.
struct Verdict {
  bool good = true;
  std::string kind;  ///< of a bad one: "no_targets", "nonfinite" or "spike"
  std::string why;   ///< for people: "loss 9.1 is above 4.2 = ..."
  BadStepPolicy action = BadStepPolicy::Stop;  ///< of a bad one
  bool too_many = false;                       ///< why the action is Stop
};

/// Tells good steps from bad ones by loss and gradient norm. A value is a spike when it
/// is more than spike_sigmas standard deviations above the mean of the last good steps,
/// of which there must be half a window; a deviation counts as at least a thousandth of
/// the mean. What is bad never enters the window. The verdict depends on the arguments
/// only, which all ranks have alike: they agree without asking each other.
class StepGuard {
 public:
  explicit StepGuard(const ResilienceSection& settings) : settings_(settings) {}

  /// Of the step; adds it to the state. `without_targets`: a term of the loss of which
  /// the batch has no target, and which is undefined; empty: there is none.
  Verdict judge(GuardState& state, int64_t step, double loss, double norm,
                const std::string& without_targets = {}) const;
  /// Throws where such a verdict is to stop the run, the same on all ranks: Internal, and
  /// InputError where the data is to blame.
  void stop_if_told(const Verdict& verdict, const GuardState& state, int64_t step) const;

 private:
  std::string spike(const std::vector<double>& window, const char* name,
                    double value) const;

  ResilienceSection settings_;
};

}  // namespace longhaul::train
