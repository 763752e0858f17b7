#pragma once

#include <cstdint>

#include "longhaul/config/run_config.h"

namespace longhaul::optim {

/// Returns the share of the difference between the first and the last rate of a decay
/// that is left at x, from 1 at x = 0 to 0 at x = 1.
double decay_left(DecayForm form, double x);

/// The learning rate as a pure function of the step, so that nothing has to be saved or
/// restored. ScheduleSection defines the forms and their letters. Immutable; may be used
/// from any thread.
///
/// Optimizer steps count from 1. The programs that the forms are taken from call their
/// scheduler after each step and count from 0, so that step n here is their scheduler
/// step n - 1. Under a warm-up from zero the first step runs at rate 0, as in those
/// programs.
class Schedule {
 public:
  /// Makes a schedule with the peak `lr`. `steps` is the length of the run, which is the
  /// horizon T unless the section names a horizon. Throws ConfigError if warm-up and
  /// decay do not fit into T.
  Schedule(const ScheduleSection& section, double lr, int64_t steps);

  /// Returns the rate of optimizer step `step`, which counts from 1.
  double lr(int64_t step) const;

 private:
  double cosine(double s) const;
  double linear(double s) const;
  double wsd(double s) const;
  double smp(double s) const;
  bool in_warmup(double s) const;
  double warmup_rate(double s) const;
  /// Returns the rate at x of a decay from lr at x = 0 to min_lr at x = 1.
  double decayed(DecayForm form, double x) const;

  ScheduleSection section_;
  double lr_;
  double horizon_;  ///< T
  double warmup_;   ///< W
  double decay_;    ///< D of wsd
};

}  // namespace longhaul::optim
