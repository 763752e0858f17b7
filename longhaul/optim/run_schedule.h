#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/load.h"
#include "longhaul/optim/schedule.h"

namespace longhaul::optim {

/// The point at which a schedule continues an earlier schedule.
struct Junction {
  int64_t step = 0;   ///< steps made under the earlier schedule
  double rate = 0.0;  ///< the rate of the next step under the earlier schedule
  bool operator==(const Junction&) const = default;
};

/// Where the decay of kind wsd begins and the run ends, as rank 0 has decided it for
/// run.until or run.budget (train/history/run_end.h).
struct Ending {
  int64_t begin = 0;  ///< steps before the decay
  int64_t end = 0;    ///< the run's last step, at which the decay ends
  int64_t world = 0;  ///< the number of ranks that it was decided for
  bool operator==(const Ending&) const = default;

  Json to_json() const;
  /// Throws Json::exception where a number is missing.
  static Ending from_json(const Json& json);
};

/// Everything that decides the rate of every step of a run. A checkpoint holds it, since
/// the junction with an earlier schedule is no part of the settings of a run.
struct ScheduleBasis {
  ScheduleSection section;
  double lr = 0.0;    ///< optimizer.lr
  int64_t steps = 0;  ///< the length of the run: the horizon if the section names none
  std::optional<Junction> from = {};  ///< with section.continue_ rewarm or decay
  std::optional<Ending> ending = {};  ///< with kind wsd; replaces horizon and decay_steps

  Json to_json() const;
  /// Reads what to_json() has written. Throws InputError for anything else.
  static ScheduleBasis from_json(const Json& json);
};

/// The steps of kind wsd between warm-up and decay, as the settings alone say.
struct StableSteps {
  int64_t begin = 0;    ///< steps before them: the warm-up, and an earlier schedule
  int64_t end = 0;      ///< steps before the decay
  int64_t decay = 0;    ///< steps of the decay
  int64_t earlier = 0;  ///< those of `begin` of which a share of the run does not count
};
StableSteps stable_steps(const ScheduleBasis& basis);

/// The rate of every step, as ScheduleSection defines it. Immutable; may be used from any
/// thread.
class RunSchedule {
 public:
  /// Throws ConfigError if warm-up and decay do not fit into the steps, or if a decay
  /// begins at its end.
  explicit RunSchedule(const ScheduleBasis& basis);

  /// Returns the rate of optimizer step `step`, which counts from 1; the rate of the
  /// junction for steps before a junction.
  double lr(int64_t step) const;
  const ScheduleBasis& basis() const { return basis_; }
  /// Returns "rewarm after step 100: from 1e-06 to 3e-05 over 20 steps", or "" if there
  /// is no junction.
  std::string describe() const;

 private:
  double decay(double k) const;

  ScheduleBasis basis_;
  int64_t warmup_ = 0;  ///< steps of a new warm-up
  double peak_ = 0.0;   ///< continue_fraction times lr, the peak of a new warm-up
  double horizon_ = 0.0;
  Schedule shape_;  ///< rates of the steps after a new warm-up, or of all steps
};

/// What a run that resumes knows from its checkpoint.
struct Resumed {
  const RunConfig& saved;  ///< the checkpoint's settings
  ScheduleBasis basis;     ///< the checkpoint's schedule
  int64_t step = 0;        ///< steps made so far
};

/// Returns the schedule of a run that resumes with the settings `now` and has `steps`
/// steps in all. The setting schedule.continue must be set if [schedule] has changed, or
/// if the length of the run has changed and past rates or the next rate depend on the
/// length. Otherwise throws ConfigError, which names the changes. `trains` is false if no
/// step is left to be made. The checkpoint's ending stays, except where a new schedule
/// continues the checkpoint's.
ScheduleBasis resumed_schedule(const Resumed& resumed, const RunConfig& now,
                               int64_t steps, bool trains);

/// Returns the schedule of a run that resumes from a checkpoint of another program. Such
/// a checkpoint has no schedule, so that a new warm-up begins at 0.
ScheduleBasis imported_schedule(const RunConfig& now, int64_t steps, int64_t step);

/// Returns the schedule of a run without a checkpoint. Throws ConfigError if
/// schedule.continue is set.
ScheduleBasis first_schedule(const RunConfig& config, int64_t steps);

struct RatePoint {
  int64_t step = 0;
  double rate = 0.0;
};
/// Returns rates that show the shape of the schedule between two steps, both included: at
/// the first step, the end of a warm-up, each quarter, and the last step. Returns nothing
/// if first > last.
std::vector<RatePoint> rate_points(const RunSchedule& schedule, int64_t first,
                                   int64_t last);

}  // namespace longhaul::optim
