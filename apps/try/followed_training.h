#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {

/// How a training is followed.
struct FollowOptions {
  double most_seconds = 0.0;  ///< after these the run is asked to save and end
  bool draws = true;          ///< draws the loss on a terminal while the run trains
};

/// Follows a run that another process trains, by reading the run's files.
class FollowedTraining {
 public:
  FollowedTraining(fs::path run_dir, FollowOptions options);

  /// Reads the run's files and draws the loss, at most four times a second however often
  /// it is called.
  void look();
  /// Call it when the run has ended: reads the rest of the files and removes the drawn
  /// line.
  void finish();

  /// Returns the median speed of the steps. The first step of a start counts only if
  /// there is no other. Throws Error (Internal) if there was no step.
  double sequences_per_s() const;
  /// Returns how long all steps took together, in seconds.
  double seconds_of_steps() const;
  /// Returns one line with the curve of the loss, its first and its last value, and the
  /// loss on held-out text. Throws Error (Internal) if there was no step.
  std::string summary() const;

 private:
  std::vector<double> losses() const;
  const run::StepRecord& last_record() const;
  void draw();

  fs::path dir_;
  FollowOptions options_;
  system::Stopwatch watch_;
  std::optional<monitor::RunFiles> run_;
  double next_look_ = 0.0;
  bool drawn_ = false;
  bool asked_to_stop_ = false;
};

}  // namespace longhaul::apps
