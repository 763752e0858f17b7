#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// Kinds of work, each with its own usual length of pauses.
enum class WorkKind {
  Start,
  Step,
  Validation,
  Save,
  SaveWait,  ///< waiting for a save that goes on beside the training
};
inline constexpr size_t kWorkKinds = 5;
const char* work_name(WorkKind kind);

/// Returns the work of the ranks: a save, a wait for a save or a validation if any rank
/// is at it, else a start until all ranks have done a step, then a step.
WorkKind work_of(const RankList& ranks);

struct HangLimits {
  /// Seconds without progress that are a hang. 0: the limit is learned, as five times the
  /// longest pause that ended by itself in work of the same kind.
  double quiet_seconds = 0.0;
  double least_seconds = 10.0;  ///< the shortest learned limit
  /// The shortest learned limit for saves and for waiting for them: storage that was
  /// quick may be slow for a minute.
  double least_save_seconds = 60.0;
  double unlearned_seconds = 600.0;  ///< the limit before such a pause was seen
  double start_seconds = 60.0;       ///< the shortest limit for a start
};

/// Says when living ranks have made no progress for too long. The watch lives as long as
/// the supervisor, so that it keeps over restarts what it has learned.
class HangWatch {
 public:
  explicit HangWatch(const HangLimits& limits) : limits_(limits) {}

  /// Call it often. Returns the seconds without progress if they are too many. Before the
  /// first rank is seen, the seconds are `started_seconds`, the age of this start. The
  /// seconds are never more than `awake_seconds`, before which this process did not look.
  std::optional<double> look(
      const RankList& ranks, double started_seconds = 0.0,
      double awake_seconds = std::numeric_limits<double>::infinity());
  /// Forgets the present pause, for a new start.
  void restart();
  /// Returns how many seconds without progress are a hang in this work now.
  double limit(WorkKind kind) const;

 private:
  void learn_phases(const RankList& ranks);

  HangLimits limits_;
  /// For each kind of work: the longest pause that ended by itself, and for saves, waits
  /// for saves and validations also the longest time from begin to end.
  std::array<double, kWorkKinds> longest_{};
  bool saw_steps_ = false;  ///< ranks have gone from one step to the next
  int64_t steps_before_ = 0;
  double quiet_before_ = 0.0;
  WorkKind kind_before_ = WorkKind::Start;
};

}  // namespace longhaul::cluster
