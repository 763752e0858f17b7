#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/run_config.h"

namespace longhaul::train {

/// What judging a step needs to know of earlier steps. It is part of every checkpoint, so
/// that a run that goes on judges as a run that never stopped.
struct GuardState {
  /// Losses and gradient norms of the last good steps, the oldest first; both have the
  /// same length.
  std::vector<double> losses;
  std::vector<double> norms;
  /// Bad steps among the last steps, in the order in which they came; a rollback does not
  /// remove them.
  std::vector<int64_t> bad_steps;
  int64_t rollbacks = 0;  ///< rollbacks of the run so far

  Json to_json() const;
  /// Throws Json::exception where `json` is not what to_json() makes.
  static GuardState from_json(const Json& json);
  bool operator==(const GuardState&) const = default;
};

/// What is to become of a step whose gradients are complete.
struct Verdict {
  bool good = true;
  std::string kind;  ///< of a bad step: "no_targets", "nonfinite" or "spike"
  std::string why;   ///< explanation for a person: "loss 9.1 is above 4.2 = ..."
  BadStepPolicy action = BadStepPolicy::Stop;  ///< what to do about a bad step
  bool too_many = false;  ///< whether the action is Stop because of too many bad steps
};

/// Tells good steps from bad ones by loss and gradient norm. A value is a spike when it
/// is more than spike_sigmas standard deviations above the mean of the last good steps.
/// Nothing is a spike before half a window of good steps is there, and a deviation counts
/// as at least a thousandth of the mean. Values of bad steps never enter the window. The
/// verdict depends on the arguments only, which all ranks have alike, so the ranks agree
/// without communication.
class StepGuard {
 public:
  explicit StepGuard(const ResilienceSection& settings) : settings_(settings) {}

  /// Judges the step and adds it to the state. `without_targets` names a term of the loss
  /// that is undefined because the batch has no target for it; empty: there is no such
  /// term.
  Verdict judge(GuardState& state, int64_t step, double loss, double norm,
                const std::string& without_targets = {}) const;
  /// Throws where the verdict is to stop the run, the same on all ranks: InputError where
  /// the data is to blame, else Error (Internal).
  void stop_if_told(const Verdict& verdict, const GuardState& state, int64_t step) const;

 private:
  std::string spike(const std::vector<double>& window, const char* name,
                    double value) const;

  ResilienceSection settings_;
};

}  // namespace longhaul::train
