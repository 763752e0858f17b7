#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "longhaul/run/step_record.h"

namespace longhaul::train {

/// Means over the last steps of a start, for the step lines of the log and for
/// run.expect. The rates leave out the start's first step, which warms up, unless there
/// is no other step; the loss leaves out values that are not finite.
class RunningMeans {
 public:
  /// `window` is the most steps that count, at least 1.
  explicit RunningMeans(int64_t window) : window_(window) {}

  void add(const run::StepRecord& record);
  /// Forgets all steps. The next step is not the first of the start, so its time counts.
  void clear() { steps_.clear(); }

  /// Returns the number of steps that the means are of.
  int64_t steps() const { return static_cast<int64_t>(steps_.size()); }
  /// Returns whether there is only the start's first step.
  bool warms_up() const { return steps_.size() == 1 && steps_.front().warms_up; }
  /// Returns the number of steps that the rates are of.
  int64_t timed_steps() const;
  /// Returns the mean of the losses in nats; NaN where no loss is finite.
  double loss() const;
  // Each function returns what the steps have trained on, divided by their seconds. The
  // result is NaN if there is no step.
  double seqs_per_s() const { return rate(&Step::sequences); }
  double tokens_per_s() const { return rate(&Step::tokens); }
  /// Returns the mean of the steps' seconds; NaN if there is no step.
  double step_time() const;
  /// Returns "mean of 10: step_time 285.120s throughput 3.59 seq/s 29421 tok/s loss
  /// 1.67900"; empty where there are fewer than two steps.
  std::string describe() const;

 private:
  struct Step {
    double loss = 0.0;
    double seconds = 0.0;
    double sequences = 0.0;
    double tokens = 0.0;
    bool warms_up = false;
  };
  /// Returns whether the step's time counts.
  bool counts(const Step& step) const { return !step.warms_up || steps_.size() == 1; }
  double rate(double Step::* what) const;

  int64_t window_;
  bool begun_ = false;
  std::deque<Step> steps_;
};

}  // namespace longhaul::train
