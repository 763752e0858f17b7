#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/load.h"
#include "longhaul/optim/schedule.h"

namespace longhaul::optim {

/// Where a schedule goes on from an earlier one.
struct Junction {
  int64_t step = 0;   ///< steps that were done
  double rate = 0.0;  ///< what the next one would have had
  bool operator==(const Junction&) const = default;
};

/// What decides the rate of every step of a run. A checkpoint holds it, since what a run
/// goes on from is no part of its settings.
struct ScheduleBasis {
  ScheduleSection section;
  double lr = 0.0;    ///< optimizer.lr
  int64_t steps = 0;  ///< the run's length, which is the horizon unless the section says
  std::optional<Junction> from = {};  ///< with section.continue_ rewarm or decay

  Json to_json() const;
  /// InputError.
  static ScheduleBasis from_json(const Json& json);
};

/// The rate of every step, as ScheduleSection defines it. Immutable; any thread.
class RunSchedule {
 public:
  /// ConfigError where the pieces do not fit into the steps, or a decay begins at its
  /// end.
  explicit RunSchedule(const ScheduleBasis& basis);

  /// Of optimizer step `step` (from 1); before a junction, the junction's.
  double lr(int64_t step) const;
  const ScheduleBasis& basis() const { return basis_; }
  /// "rewarm after step 100: from 1e-06 to 3e-05 over 20 steps, then cosine"; "" where it
  /// goes on from nothing.
  std::string describe() const;

 private:
  double decay(double k) const;

  ScheduleBasis basis_;
  int64_t warmup_ = 0;  ///< rewarm: W
  double peak_ = 0.0;   ///< rewarm: F lr
  double horizon_ = 0.0;
  Schedule shape_;  ///< of the steps after a new warm-up, or of all
};

/// What a start knows when it resumes from a checkpoint.
struct Resumed {
  const RunConfig& saved;  ///< the checkpoint's settings
  ScheduleBasis basis;     ///< and its schedule
  int64_t step = 0;        ///< steps done
};

/// The schedule of a run that resumes with the settings `now`, of `steps` steps in all. A
/// change of [schedule], or of the run's length where rates that were or the next one
/// depend on it, needs schedule.continue: ConfigError names what has changed. `trains`:
/// false where no step is left to be made.
ScheduleBasis resumed_schedule(const Resumed& resumed, const RunConfig& now,
                               int64_t steps, bool trains);

/// The same from a checkpoint that another program made: it says no schedule, so that a
/// new warm-up begins at 0.
ScheduleBasis imported_schedule(const RunConfig& now, int64_t steps, int64_t step);

/// ConfigError where there is nothing to continue.
ScheduleBasis first_schedule(const RunConfig& config, int64_t steps);

struct RatePoint {
  int64_t step = 0;
  double rate = 0.0;
};
/// Rates that show the schedule's shape between two steps (both included): the first, the
/// end of a warm-up, each quarter, the last. Nothing where first > last.
std::vector<RatePoint> rate_points(const RunSchedule& schedule, int64_t first,
                                   int64_t last);

}  // namespace longhaul::optim
