#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "longhaul/base/clock.h"
#include "longhaul/run/events.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/log/metrics.h"
#include "longhaul/train/log/step_figures.h"
#include "longhaul/train/start/run_start.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Why a run ends before its last step.
struct StopCause {
  /// Number of the signal that ends the run; 0: a file, a rule or nothing ends it.
  int signal = 0;
  std::string by;  ///< name of the signal, file or rule; empty: all steps are done
  std::string then = "the same command goes on";  ///< what a person may do next
};

/// Reports what a run does: log.txt, metrics.jsonl, events.jsonl, TensorBoard,
/// config.toml and results.json. Rank 0 writes; on the other ranks the calls do nothing,
/// except where said.
class RunLog {
 public:
  /// Opens the files of a start. Collective.
  RunLog(const LoadedConfig& loaded, RunStart& start, comm::Communicator& world);

  system::Logger& log() { return *log_; }
  /// Appends one of the events of run/events.h to events.jsonl. The events before start()
  /// are held until then.
  void event(const char* kind, Json fields);
  template <typename Event>
  void event(const Event& event) {
    this->event(Event::kKind, run::event_fields(event));
    if constexpr (std::is_same_v<Event, run::RollbackEvent>) {
      if (metrics_) metrics_->go_back(event.to_step);
    }
  }

  /// Writes config.toml and the log's head: versions, hosts, layout, important settings.
  /// Where all steps were done by an earlier start and no step is left, the start leaves
  /// the run's files as they are. Collective.
  void start(const TrainingSession& session, const History& history, int64_t total_steps,
             int64_t last_step);
  /// Logs the learning rates of the steps to come, and which rates they continue.
  void tell_rates(const optim::RunSchedule& schedule, int64_t first, int64_t last);
  /// Tells where the run ends now, which was decided for `schedule`: with `last_step`.
  void tell_ending(run::EndDecidedEvent decided, const optim::RunSchedule& schedule,
                   int64_t last_step);
  /// Logs how much of each source the run will read.
  void tell_plan(const std::vector<data::SourcePlan>& plan,
                 const std::vector<data::PhaseChange>& changes);
  void record(const run::StepRecord& record,
              const std::vector<data::SourceCount>& sources,
              const run::PhaseMemory& memory);
  /// Records the memory that was noted after the last step's record, as an event and in
  /// TensorBoard.
  void record_memory(int64_t step, const run::PhaseMemory& memory);
  /// Records the loss of a validation set, and the figures of its pairs if it has pairs.
  void record_validation(int64_t step, const std::string& name, double loss,
                         double seconds, const run::PairFigures& pairs);
  /// Records the figures of a task over its questions.
  void record_task(int64_t step, const std::string& name,
                   std::vector<run::TaskFigure> figures, int64_t questions,
                   double seconds);
  /// Records what the routers of experts did in a step, as an event and in TensorBoard.
  void record_loads(const run::ExpertLoadsEvent& loads);
  /// Writes what the model generates after a prompt to the log and the events.
  void tell_sample(const run::SampleEvent& sample);
  /// Records a bad step and what is done about it.
  void record_bad_step(const History& history, const StepOutcome& outcome);
  /// Writes results.json, what rank 0 has sent to other ranks (event "traffic"), and the
  /// last lines of the log. `saved` says in words which state is saved when the run ends
  /// here.
  void finish(const TrainingSession& session, const History& history,
              const StopCause& stopped, const std::string& saved);
  /// Writes the error that ends the attempt to log.txt and events.jsonl, where these can
  /// still be written. A start that is refused before start() is no attempt.
  void fail(const Error& error) noexcept;

 private:
  /// Throws where another start has taken the run's lock: two starts must not write one
  /// history. Does not throw where the lock is gone; the next save looks at it.
  void prove_held() const;
  void write_head(const TrainingSession& session, const History& history,
                  const std::string& hosts);
  std::string epochs_left(const TrainingSession& session, const History& history) const;
  std::string nothing_to_do() const;
  void begin_events();
  void refuse(const std::string& message);
  void write_results_file(const TrainingSession& session);

  std::unique_ptr<system::Logger>
      log_;  ///< on the heap, because others keep references to it
  std::optional<MetricsWriter> metrics_;
  RunStart& start_;
  /// The events of a start that may still be refused; nothing once it has begun.
  std::optional<std::vector<Json>> held_ = std::vector<Json>();
  bool refused_ = false;  ///< no event of this start follows
  RunConfig config_;
  int attempt_;
  int64_t total_steps_ = 0;
  int64_t last_step_ = 0;
  double started_ = 0.0;
  ClockWatch clock_;
  int64_t first_step_ = 0;
  bool ended_as_decided_ = false;  ///< an earlier start has done the decided last step
};

}  // namespace longhaul::train
