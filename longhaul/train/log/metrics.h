#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/json/jsonl.h"
#include "longhaul/run/events.h"
#include "longhaul/run/step_record.h"
#include "longhaul/run/tensorboard.h"
#include "longhaul/system/log.h"
#include "longhaul/train/history/running_means.h"
#include "longhaul/train/log/other_results.h"

namespace longhaul::train {

/// Returns the line of a step in log.txt, with the means of the last steps where these
/// are several.
std::string log_line(const run::StepRecord& record, const RunningMeans& means);

/// Writes metrics.jsonl, events.jsonl, TensorBoard's files and the step lines of the log.
/// Only rank 0 has one.
class MetricsWriter {
 public:
  /// `log_every` thins out the lines of log.txt only. `log_window` is the number of steps
  /// over which a line has means. `tensorboard` is the directory of TensorBoard's files;
  /// empty: there are none.
  MetricsWriter(const fs::path& run_dir, system::Logger& log, int64_t log_every,
                fs::path tensorboard, int64_t log_window = 1);

  /// Begins TensorBoard's file. Says that the start goes on from `step`, up to the last
  /// step.
  void begin(int64_t step, int64_t last_step);
  /// Notes that the run is to end with another step than begin() was told.
  void ends_at(int64_t last_step) { last_step_ = last_step; }
  /// Writes a text about the start, for people, to TensorBoard under this name.
  void text(const char* name, const std::string& lines);
  /// Says that the run has gone back to `step`.
  void go_back(int64_t step);
  void step(const run::StepRecord& record, const run::SourceTokens& sources,
            const run::PhaseMemory& memory = {});
  /// Appends the event of memory that was noted after the last step's line, and gives it
  /// to TensorBoard.
  void phase_memory(int64_t step, int attempt, const run::PhaseMemory& memory);
  void validation(const run::ValidationRecord& record);
  void task(const run::ValidationRecord& record);
  /// Appends the event, and gives TensorBoard the share of experts in use and the entropy
  /// of each layer.
  void expert_loads(const run::ExpertLoadsEvent& loads);
  /// Appends a line to events.jsonl, which run::event_line() made.
  void event(const Json& line);

 private:
  /// Gives TensorBoard several numbers, each under `key` and a name of its own.
  void scalars(const char* key, int64_t step,
               const std::vector<std::pair<std::string, int64_t>>& numbers);

  system::Logger& log_;
  int64_t log_every_;
  fs::path tensorboard_dir_;
  RunningMeans means_;
  JsonLines metrics_;
  JsonLines events_;
  std::optional<run::TensorBoardWriter> tensorboard_;
  int64_t steps_before_ = 0;
  int64_t last_step_ = 0;
  std::chrono::steady_clock::time_point started_;
};

/// Writes results.json in the form that log.results of the facts names. `parameters` are
/// the run's parameters in this program's own form (run_log.cpp). The metrics come from
/// all of metrics.jsonl and events.jsonl, so that a restart loses nothing. The time to
/// train is the wall time from the first start on; this program's form splits it by
/// classes, as `longhaul report` does. Its throughput counts each step once and leaves
/// out the first step of a start, which warms up; MFU and TFLOP/s are means over the same
/// steps' time. Returns the number of lines of metrics.jsonl that cannot be read and were
/// passed over; only a damaged disk makes such lines.
int64_t write_results(const fs::path& run_dir, const Json& parameters,
                      const ResultsFacts& facts = {});

/// Returns the newest step that counts in metrics.jsonl; 0 where there is none.
int64_t last_step_of_metrics(const fs::path& run_dir);
/// Returns whether the newest start that trained has recorded that all its steps are
/// done.
bool is_done(const fs::path& run_dir);

/// Brings the time to train in results.json up to what events.jsonl says by now: what a
/// supervisor does after its ranks have ended is time of the run too. Does nothing where
/// there is no results.json; throws InputError or TemporaryError where the file cannot be
/// read or written.
void settle_time_to_train(const fs::path& run_dir);

}  // namespace longhaul::train
