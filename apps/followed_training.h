#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {

struct FollowOptions {
  double most_seconds = 0.0;  ///< then the run is asked to save and end
  bool draws = true;          ///< the loss, on a terminal, while it trains
};

/// Follows a run that another process trains, by its files.
class FollowedTraining {
 public:
  FollowedTraining(fs::path run_dir, FollowOptions options);

  /// As often as one likes: reads and draws at most four times a second.
  void look();
  /// The run has ended: reads the rest and takes the drawn line away.
  void finish();

  /// The middle of the steps but the first; the mean where there was only one. Error
  /// (Internal) where there was none.
  double sequences_per_s() const;
  double seconds_of_steps() const;
  /// The curve of the loss, where it began and ended, and the loss on what was held out.
  std::string summary() const;

 private:
  std::vector<double> losses() const;
  const StepRecord& last_record() const;
  void draw();

  fs::path dir_;
  FollowOptions options_;
  Stopwatch watch_;
  std::optional<monitor::RunFiles> run_;
  double next_look_ = 0.0;
  bool drawn_ = false;
  bool asked_to_stop_ = false;
};

}  // namespace longhaul::apps
