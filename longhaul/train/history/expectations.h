#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/run_config.h"
#include "longhaul/monitor/against.h"
#include "longhaul/train/history/running_means.h"

namespace longhaul::train {

/// A way in which a step misses run.expect or run.golden.
struct Miss {
  const char* event = "";  ///< kind of the event that tells it (run/events.h)
  const char* key = "";    ///< EndEvent's name of the setting
  std::string why;         ///< for a person: "throughput 90 tok/s is below ..."
  Json fields;             ///< fields of the event
  bool stops = false;      ///< whether the run is to end
};

/// Compares the steps of a start with run.expect and run.golden. Only rank 0 has such an
/// object; the other ranks do what rank 0 decides.
class Expectations {
 public:
  /// Reads the file of golden losses. Throws InputError where it cannot be read or holds
  /// no loss.
  explicit Expectations(const RunSection& settings);

  /// Takes the next step, and returns what the step misses. The throughput is judged once
  /// its mean is over the number of steps that run.expect names, and at the `last` step
  /// of a start with fewer steps. Where the run goes on after a miss, the throughput is
  /// judged again after the same number of steps. A loss is then reported only if the
  /// loss of the golden step before it was within the tolerance.
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
  bool misses_ = false;  ///< whether the last loss that was compared was a miss
};

}  // namespace longhaul::train
