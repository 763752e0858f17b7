#pragma once

#include <memory>
#include <optional>
#include <string>

#include "longhaul/base/clock.h"
#include "longhaul/checkpoint/saver.h"
#include "longhaul/run/events.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/start_record.h"
#include "longhaul/train/history.h"
#include "longhaul/train/metrics.h"
#include "longhaul/train/peak_rate.h"
#include "longhaul/train/session.h"

namespace longhaul::train {

/// What the trainer hands over after a step.
struct StepOutcome {
  double loss = 0.0;
  double grad_norm = 0.0;
  double lr = 0.0;
  double step_time = 0.0;  ///< seconds
  double data_time = 0.0;  ///< seconds of it spent waiting for the batch
  double epoch = 0.0;
  Verdict verdict;  ///< a bad step's update was not made
};

/// Why a run ends before its last step.
struct StopCause {
  int signal = 0;  ///< 0: a control file, or nothing
  std::string by;  ///< the signal's or file's name; empty: all steps are done
};

/// World and mesh, for the record.
Json layout_of(const Session& session);

/// Everything a run leaves in its directory: the lock, the log, metrics, events, results
/// and checkpoints. Rank 0 speaks; the other ranks' calls do nothing but where said.
class RunLog {
 public:
  /// Takes the run directory (lock, log). Collective.
  RunLog(const LoadedConfig& loaded, comm::Communicator& world);

  Logger& log() { return *log_; }
  int attempt() const { return attempt_; }

  /// Starts from a checkpoint that did not get through one step, in a row. Rank 0.
  int failed_starts(const fs::path& step_dir) const;
  /// A start from the checkpoint of this step begins; the first step that is done, or an
  /// orderly end, clears it.
  void begin_start(int64_t step);
  /// The checkpoint of this step was read whole and found good; before start().
  void checkpoint_was_read(int64_t step) { read_checkpoint_ = step; }
  /// Looks on the disk for what a stop would leave: at the start, and after checkpoints
  /// have been set aside.
  void find_newest_checkpoint();
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
  /// How much of each source the run will read.
  void tell_plan(const std::vector<data::SourcePlan>& plan,
                 const std::vector<data::PhaseChange>& changes);
  /// Memory is the largest over the ranks. The first call measures the peak that mfu
  /// relates to. Collective.
  void record(const Session& session, const History& history, const StepOutcome& outcome);
  void record_validation(int64_t step, const std::string& name, double loss,
                         double seconds);
  /// Makes the host memory that saves of tensors like these need, after start().
  void prepare_saves(const std::vector<checkpoint::StateTensor>& tensors) {
    saver_->prepare(tensors);
  }
  /// Begins to write a checkpoint, or writes it: with [checkpoint] async = false, and the
  /// last one (`ends`), for which nothing is copied. `owner` keeps the tensors' bytes
  /// where they are copies already. Waits for the checkpoint before it. Collective.
  void save(const History& history, const std::vector<checkpoint::StateTensor>& tensors,
            std::shared_ptr<const void> owner, bool ends);
  /// After every step: says what has become of a checkpoint under way. True when the last
  /// one failed and is to be tried again; throws when that has been tried often enough.
  /// Collective.
  bool settle_saves();
  /// Waits until the checkpoint under way is durable; throws when it could not be
  /// written. Collective.
  void finish_saves();
  /// The same, but that a save that failed is only told and left to the next
  /// settle_saves(). Collective.
  void drain_saves();
  /// A bad step and what is done about it: a line of the log and an event. Throws where
  /// that is to stop: Internal, the same on all ranks.
  void tell_bad_step(const History& history, const StepOutcome& outcome);
  /// Writes what was captured of a step to run.dir/captures. Collective.
  void save_capture(const Session& session, int64_t step,
                    const std::vector<checkpoint::StateTensor>& tensors);
  /// results.json, what rank 0 has sent to other ranks (event "traffic"), the last lines.
  void finish(const Session& session, const History& history, const StopCause& stopped);
  /// Leaves the error that ends the attempt in log.txt and events.jsonl, where they can
  /// still be written.
  void fail(const std::string& message) noexcept;

 private:
  void write_head(const Session& session, const std::string& hosts);
  void tell(const checkpoint::SaveReport& report);
  void tell_deletions();
  void tell_clock();
  void write_results_file(const Session& session);
  std::string saved_words(int64_t step) const;
  void set_last_words() const;
  checkpoint::SaverOptions saver_options(const Session& session,
                                         const fs::path& dir) const;
  checkpoint::SaverOptions checkpoint_options(const Session& session);
  /// What mfu relates to, of this rank, after a step of so many FLOP/s. `peak_resident`:
  /// in, of this rank; out, the largest of all ranks. Collective.
  void settle_peak(const Session& session, int64_t step, double step_rate,
                   int64_t& peak_resident);

  std::unique_ptr<Logger> log_;  ///< on the heap: others keep references
  std::optional<RunLock> lock_;
  std::optional<StartRecord> starts_;
  std::optional<MetricsWriter> metrics_;
  std::optional<checkpoint::Saver> saver_;
  int failed_saves_ = 0;       ///< in a row
  double longest_save_ = 0.0;  ///< seconds
  checkpoint::SaveReport last_failure_;
  std::vector<checkpoint::CarriedFile> carried_;
  RunConfig config_;
  int attempt_ = 1;
  int64_t total_steps_ = 0;
  int64_t last_step_ = 0;
  FlopsPerToken flops_;
  std::optional<PeakRate> peak_;
  double started_ = 0.0;
  ClockWatch clock_;
  int64_t first_step_ = 0;
  std::optional<int64_t> read_checkpoint_;
  int64_t reached_ = 0;                       ///< the newest step that was done
  std::optional<int64_t> newest_checkpoint_;  ///< step of what a start would go on from
};

}  // namespace longhaul::train
