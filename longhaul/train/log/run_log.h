#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/clock.h"
#include "longhaul/run/events.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/log/metrics.h"
#include "longhaul/train/log/step_figures.h"
#include "longhaul/train/session/run_start.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Why a run ends before its last step.
struct StopCause {
  int signal = 0;  ///< 0: a control file, or nothing
  std::string by;  ///< the signal's, file's or rule's name; empty: all steps are done
  std::string then = "the same command goes on";  ///< what is to follow
};

/// Tells what a run does and comes to: log.txt, metrics.jsonl, events.jsonl, TensorBoard,
/// config.toml and results.json. Rank 0 speaks; the other ranks' calls do nothing but
/// where said.
class RunLog {
 public:
  /// Opens the files of a start. Collective.
  RunLog(const LoadedConfig& loaded, const RunStart& start, comm::Communicator& world);

  Logger& log() { return *log_; }
  /// A line of events.jsonl: one of run/events.h.
  void event(const char* kind, Json fields);
  template <typename Event>
  void event(const Event& event) {
    this->event(Event::kKind, event_fields(event));
  }

  /// config.toml and the log's head: versions, hosts, layout, settings that matter.
  /// Collective.
  void start(const Session& session, const History& history, int64_t total_steps,
             int64_t last_step);
  /// The rates of the steps to come, and what they go on from.
  void tell_rates(const optim::RunSchedule& schedule, int64_t first, int64_t last);
  /// How much of each source the run will read.
  void tell_plan(const std::vector<data::SourcePlan>& plan,
                 const std::vector<data::PhaseChange>& changes);
  void record(const StepRecord& record, const std::vector<data::SourceCount>& sources);
  void record_validation(int64_t step, const std::string& name, double loss,
                         double seconds);
  /// A bad step and what is done about it.
  void record_bad_step(const History& history, const StepOutcome& outcome);
  /// results.json, what rank 0 has sent to other ranks (event "traffic"), the last lines.
  /// `saved`: what a stop here leaves, in words.
  void finish(const Session& session, const History& history, const StopCause& stopped,
              const std::string& saved);
  /// Leaves the error that ends the attempt in log.txt and events.jsonl, where they can
  /// still be written.
  void fail(const std::string& message) noexcept;

 private:
  void write_head(const Session& session, const std::string& hosts);
  void tell_clock();
  void write_results_file(const Session& session);

  std::unique_ptr<Logger> log_;  ///< on the heap: others keep references
  std::optional<MetricsWriter> metrics_;
  RunConfig config_;
  int attempt_;
  int64_t total_steps_ = 0;
  int64_t last_step_ = 0;
  double started_ = 0.0;
  ClockWatch clock_;
  int64_t first_step_ = 0;
};

}  // namespace longhaul::train
