#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/jsonl.h"
#include "longhaul/run/step_record.h"
#include "longhaul/run/tensorboard.h"
#include "longhaul/system/log.h"

namespace longhaul::train {

/// The line of log.txt.
std::string log_line(const StepRecord& record);

/// metrics.jsonl, events.jsonl, TensorBoard and the step lines of the log. Rank 0 only.
class MetricsWriter {
 public:
  /// `log_every` thins log.txt only.
  MetricsWriter(const fs::path& run_dir, Logger& log, int64_t log_every,
                bool tensorboard);

  /// From which step to which this start goes: for the time left.
  void set_goal(int64_t first_step, int64_t last_step);
  void step(const StepRecord& record, const SourceTokens& sources);
  void validation(const ValidationRecord& record);
  /// A line of events.jsonl.
  void event(const char* kind, Json fields);

 private:
  Logger& log_;
  int64_t log_every_;
  JsonLines metrics_;
  JsonLines events_;
  std::optional<TensorBoardWriter> tensorboard_;
  int64_t steps_before_ = 0;
  int64_t last_step_ = 0;
  std::chrono::steady_clock::time_point started_;
};

/// Writes results.json in the source systems' fields, from all of metrics.jsonl and
/// events.jsonl, so that a restart loses nothing: the time to train is the wall time from
/// the first start on, by classes, as `report` has it; the throughput counts each step
/// once and not the first of a start, which warms up. Returns the lines of metrics.jsonl
/// that cannot be read and were passed over; 0 but for a damaged disk.
int64_t write_results(const fs::path& run_dir, const Json& parameters);

/// The newest step that counts in metrics.jsonl; 0 where there is none.
int64_t last_step_of_metrics(const fs::path& run_dir);

/// Brings the time to train up to what events.jsonl says by now: what a supervisor does
/// after its ranks have ended is time of the run too. Nothing where there is no
/// results.json; InputError or TemporaryError where it cannot be read or written.
void settle_time_to_train(const fs::path& run_dir);

}  // namespace longhaul::train
