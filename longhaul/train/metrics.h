#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/jsonl.h"
#include "longhaul/base/log.h"
#include "longhaul/run/tensorboard.h"

namespace longhaul::train {

/// One optimizer step as metrics.jsonl holds it; the members are its keys.
struct StepMetrics {
  int64_t step = 0;
  int attempt = 1;     ///< which start of the run did it
  int64_t tokens = 0;  ///< of the run so far
  double loss = 0.0;
  double grad_norm = 0.0;
  double lr = 0.0;
  bool applied = true;       ///< false: a bad step, whose update was not made
  double step_time_s = 0.0;  ///< wall time, waiting for data included
  double data_time_s = 0.0;
  double seqs_per_s = 0.0;
  double tokens_per_s = 0.0;
  double mfu = 0.0;  ///< full attention
  double mfu_causal = 0.0;
  double tflops_per_device = 0.0;       ///< full attention
  double peak_tflops_per_device = 0.0;  ///< what mfu and mfu_causal relate to
  int64_t memory_peak_bytes = 0;
  int64_t host_memory_bytes = 0;
  double epoch = 0.0;
  /// Tokens of the run so far by source, in the order of data.train; sources of an
  /// earlier start only come last.
  std::vector<std::pair<std::string, int64_t>> source_tokens;
  double time = 0.0;  ///< seconds since 1970

  Json to_json() const;
  /// The line of log.txt.
  std::string to_line() const;
};

/// metrics.jsonl, events.jsonl, TensorBoard and the step lines of the log. Rank 0 only.
class MetricsWriter {
 public:
  /// `log_every` thins log.txt only.
  MetricsWriter(const fs::path& run_dir, Logger& log, int64_t log_every,
                bool tensorboard);

  /// From which step to which this start goes: for the time left.
  void set_goal(int64_t first_step, int64_t last_step);
  void step(const StepMetrics& metrics);
  void validation(int64_t step, int attempt, const std::string& name, double loss,
                  double perplexity, double seconds);
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

/// What results.json says besides what it takes from metrics.jsonl.
struct RunFacts {
  std::string model;
  int64_t world = 1;
  int64_t data_parallel = 1;
  int64_t global_batch = 0;
  int64_t total_steps = 0;
  int64_t seed = 0;
  int64_t warmup_steps = 0;
  std::string dataset;
};

/// Writes results.json in the source systems' fields, from all of metrics.jsonl and
/// events.jsonl, so that a restart loses nothing: the time to train is the wall time from
/// the first start on, by classes, as `report` has it; the throughput counts each step
/// once and not the first of a start, which warms up. Returns the lines of metrics.jsonl
/// that cannot be read and were passed over; 0 but for a damaged disk.
int64_t write_results(const fs::path& run_dir, const RunFacts& facts);

/// Brings the time to train up to what events.jsonl says by now: what a supervisor does
/// after its ranks have ended is time of the run too. Nothing where there is no
/// results.json; InputError or TemporaryError where it cannot be read or written.
void settle_time_to_train(const fs::path& run_dir);

}  // namespace longhaul::train
