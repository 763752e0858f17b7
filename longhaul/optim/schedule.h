#pragma once

#include <cstdint>

#include "longhaul/config/run_config.h"

namespace longhaul::optim {

/// The learning rate as a pure function of the step: nothing to save, nothing to restore.
/// The forms and their letters are those of ScheduleSection. Immutable; any thread.
///
/// Optimizer steps count from 1. The source systems call their scheduler after each step
/// and count from 0: step n here is their scheduler step n - 1, so that under a warm-up
/// from zero the first step runs at rate 0, as it does there.
class Schedule {
 public:
  /// `lr` is the peak, `steps` the run's length, which is the horizon T unless the
  /// section names one. ConfigError if the pieces do not fit into T.
  Schedule(const ScheduleSection& section, double lr, int64_t steps);

  /// The rate of optimizer step `step` (from 1; LH_CHECK).
  double lr(int64_t step) const;

 private:
  double cosine(double s) const;
  double linear(double s) const;
  double wsd(double s) const;
  double smp(double s) const;
  bool in_warmup(double s) const;
  double warmup_rate(double s) const;
  /// From lr at x = 0 to min_lr at x = 1.
  double decayed(DecayForm form, double x) const;

  ScheduleSection section_;
  double lr_;
  double horizon_;  ///< T
  double warmup_;   ///< W
  double decay_;    ///< D of wsd
};

/// Schedule(section, lr, steps).lr(step).
double learning_rate(const ScheduleSection& section, double lr, int64_t steps,
                     int64_t step);

}  // namespace longhaul::optim
