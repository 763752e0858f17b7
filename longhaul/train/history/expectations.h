#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/run_config.h"
#include "longhaul/monitor/against.h"
#include "longhaul/train/history/running_means.h"

namespace longhaul::train {

/// What a step does not have although run.expect or run.golden asks for it.
struct Miss {
  const char* event = "";  ///< kind of the event that tells it (run/events.h)
  const char* key = "";    ///< EndEvent's name of the setting
  std::string why;         ///< for a person: "throughput 90 tok/s is below ..."
  Json fields;             ///< of the event
  bool stops = false;      ///< the run is to end
};

/// Compares the steps of a start with run.expect and run.golden. Only rank 0 has one: the
/// other ranks take its word.
class Expectations {
 public:
  /// Reads the file of golden losses. Throws InputError where it cannot be read or holds
  /// no loss.
  explicit Expectations(const RunSection& settings);

  /// Takes the next step, and returns what the step misses. The throughput is judged once
  /// the mean is of run.expect's steps, and with the `last` step of a start that is
  /// shorter. After a miss of a run that goes on, the throughput is judged again after as
  /// many steps. Such a run is told of a loss only where the golden step before was not
  /// missed.
  std::vector<Miss> look(const run::StepRecord& record, bool last);
  /// Returns "golden losses: 3 of 4 steps within 5% of golden.txt" for the log's end;
  /// empty where no step was compared.
  std::string summary() const;

 private:
  void look_at_rate(bool last, int64_t step, std::vector<Miss>& misses);
  void look_at_loss(const run::StepRecord& record, std::vector<Miss>& misses);

  RunSection settings_;
  RunningMeans means_;
  monitor::Reference golden_;
  bool judged_ = false;  ///< whether the throughput was judged
  int64_t compared_ = 0;
  int64_t within_ = 0;
  bool misses_ = false;  ///< the last loss that was compared did
};

}  // namespace longhaul::train
