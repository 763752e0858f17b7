#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// Kinds of work whose pauses have lengths of their own.
enum class WorkKind {
  Start,
  Step,
  Validation,
  Save,
  SaveWait,  ///< for a save that goes on beside the training
};
inline constexpr size_t kWorkKinds = 5;
const char* work_name(WorkKind kind);

/// What the ranks are at: start until all have done a step, else what any of them does
/// that takes longest.
WorkKind work_of(const RankList& ranks);

struct HangLimits {
  /// Seconds without any progress that are a hang; 0: learned, five times the longest
  /// pause that ended by itself in work of the same kind.
  double quiet_seconds = 0.0;
  double least_seconds = 10.0;  ///< of what is learned
  /// Of what is learned of saves and of waiting for them: storage that was quick may have
  /// a bad minute.
  double least_save_seconds = 60.0;
  double unlearned_seconds = 600.0;  ///< before a pause of this kind was seen
  double start_seconds = 60.0;       ///< at least, for a start
};

/// Says when ranks that all live make no progress for too long. It lives as long as the
/// supervisor, so that a restart keeps what was learned.
class HangWatch {
 public:
  explicit HangWatch(const HangLimits& limits) : limits_(limits) {}

  /// To be called often. The seconds of quiet where they are too many. Before the first
  /// rank is seen all of `started_seconds`, the age of this start, are quiet. No quiet is
  /// longer than `awake_seconds`: before that nobody looked.
  std::optional<double> look(
      const RankList& ranks, double started_seconds = 0.0,
      double awake_seconds = std::numeric_limits<double>::infinity());
  /// A new start: what stood still is gone.
  void restart();
  /// Seconds that are a hang in this work now.
  double limit(WorkKind kind) const;

 private:
  void learn_phases(const RankList& ranks);

  HangLimits limits_;
  /// Pauses that ended by themselves, and whole saves and validations.
  std::array<double, kWorkKinds> longest_{};
  bool saw_steps_ = false;  ///< ranks went from one step to the next
  int64_t steps_before_ = 0;
  double quiet_before_ = 0.0;
  WorkKind kind_before_ = WorkKind::Start;
};

}  // namespace longhaul::cluster
