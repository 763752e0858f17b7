#include "longhaul/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "longhaul/base/failure.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/config/due.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/run_schedule.h"
#include "longhaul/run/files.h"
#include "longhaul/system/process_title.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/control_files.h"
#include "longhaul/train/history/expectations.h"
#include "longhaul/train/history/step_guard.h"
#include "longhaul/train/log/layer_norms.h"
#include "longhaul/train/log/router_log.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/log/step_figures.h"
#include "longhaul/train/proof/first_update.h"
#include "longhaul/train/proof/replica_check.h"
#include "longhaul/train/reference.h"
#include "longhaul/train/rehearsal.h"
#include "longhaul/train/run_end.h"
#include "longhaul/train/sample_text.h"
#include "longhaul/train/save/mirror_restore.h"
#include "longhaul/train/save/peer_memory.h"
#include "longhaul/train/save/resume.h"
#include "longhaul/train/save/run_checkpoints.h"
#include "longhaul/train/save/state_capture.h"
#include "longhaul/train/start/data_check.h"
#include "longhaul/train/start/data_feed.h"
#include "longhaul/train/start/run_start.h"
#include "longhaul/train/step/debug_faults.h"
#include "longhaul/train/step/step_loss.h"
#include "longhaul/train/step_hooks.h"
#include "longhaul/train/validation.h"

namespace longhaul::train {
namespace {

/// Seconds that the first step waits for the check of all data: small data is proven by
/// then, large data while training goes on.
constexpr double kDataCheckSeconds = 1.0;
/// How often a paused run looks whether it may go on.
constexpr auto kBetweenLooks = std::chrono::milliseconds(250);

/// Builds the session, and looks for signals afterwards. Collective.
TrainingSession start_session(const LoadedConfig& loaded, RunStart& start, RunLog& run,
                              std::shared_ptr<comm::Communicator> world,
                              data::ShardReader* shards, const objects::Access& objects) {
  debug_delay(loaded.config, world->rank(), "start");
  const auto partition_of = [&, &ranks = *world](const ModelDescription& model) {
    return find_partition(loaded.config, model, ranks, start, run);
  };
  TrainingSession session = build_session(loaded.config, std::move(world), run.log(),
                                          shards, objects, partition_of);
  end_if_asked(session.world());
  return session;
}

History start_history(TrainingSession& session, RunStart& start, RunLog& run,
                      Saving saving) {
  session.world().ledger().set("load", 0);
  debug_delay(session.config(), session.world().rank(), "load");
  History history = load_state(session, start, run);
  try {
    // A bench takes zeros, which cost a step the same time.
    if (saving == Saving::Yes) find_reference(session, history, run.log());
    end_if_asked(session.world());
  } catch (const EndedEarly&) {
    // Weights may still be arriving in memory that is freed now.
    session.replicas().finish_weights();
    throw;
  }
  return history;
}

/// Returns what judges the steps; only rank 0 has it, and only where the settings ask for
/// it. Throws on all ranks where rank 0 throws. Collective.
std::optional<Expectations> expectations_of(const session::Session& session) {
  std::optional<Expectations> found;
  const RunSection& settings = session.config().run;
  if (!settings.expect && !settings.golden) return found;
  comm::on_rank_zero(session.world(), [&] { found.emplace(settings); });
  return found;
}

class Trainer {
 public:
  Trainer(RunStart& start, RunLog& run, const LoadedConfig& loaded,
          std::shared_ptr<comm::Communicator> world, data::ShardReader* shards,
          Saving saving, const objects::Access& objects, Rehearse rehearse)
      : saving_(saving),
        start_(start),
        run_(run),
        session_(start_session(loaded, start, run, std::move(world), shards, objects)),
        history_(start_history(session_, start_, run_, saving_)),
        total_steps_(total_steps(session_, history_)),
        last_step_(find_last_step()),
        saved_step_(history_.step),
        loader_(open_loader()),
        schedule_(*history_.schedule),
        plan_(session_.layout().description().training_plan()),
        hooks_(session_, start_.attempt(), run_.log()),
        figures_(session_),
        runner_(session_.chunks(), session_.replicas(),
                session::stage_options(session_, &hooks_.capture(), &hooks_.profile(),
                                       [this] { figures_.note(MemoryPhase::Forward); })),
        data_check_(unproven_sources(session_)),
        memory_(session_, history_, start_, run_, capture_),
        router_log_(run_, config(), last_step_),
        guard_(config().resilience),
        expectations_(expectations_of(session_)),
        replica_check_(session_, config().resilience.checksum_every,
                       [this](const Json& fields) { corrupted(fields); }),
        samples_(session_, run_),
        control_(
            config().run.dir, session_.world(),
            [this](const char* file) { stopped_by_file(file); },
            config().checkpoint.every_minutes),
        checkpoints_(session_, start_, run_, history_.step),
        title_(title_of(session_)) {
    figures_.note(MemoryPhase::Weights);
    data_check_.settle(kDataCheckSeconds);
    if (saving_ == Saving::Yes) {
      train::rehearse(rehearse, {session_, history_, start_, run_, checkpoints_, capture_,
                                 total_steps_, last_step_});
    }
    run_.start(session_, history_, total_steps_, last_step_);
    run_.tell_rates(schedule_, history_.step + 1, last_step_);
    run_.tell_plan(loader_.plan(), loader_.phase_changes());
    prepare_saves();
    share_loads();
    run_end_.emplace(session_);
  }

  TrainResult run() {
    if (history_.step == 0) {
      validate();
      tell_samples();
    } else {
      risen_ = has_risen(session_, run_, history_);
    }
    const int64_t before = history_.step;
    while (history_.step < last_step_ && !ends()) {
      hooks_.begin(history_.step + 1);
      std::optional<StepOutcome> done = train_step();
      if (!done) {
        end_before_step();
        break;
      }
      StepOutcome& outcome = *done;
      figures_.complete(outcome.record, session_, run_.log());
      start_.got_through();
      checkpoints_.reached(history_.step);
      run_.record(outcome.record, history_.sources, figures_.phase_memory());
      if (rolls_back(outcome)) {
        tell_profile();
        continue;
      }
      data_check_.settle();
      if (history_.updates == 1) {
        certify_first_update(session_, outcome.record.lr, run_.log());
      }
      if (history_.step == before + 1) session::check_fallbacks(session_, run_.log());
      const bool last = history_.step == last_step_;
      judge_step(outcome.record, last);
      const bool save_again = checkpoints_.settle();
      ask();
      if (last || due(config().validation.every)) validate();
      if (last || due(config().log.prompts_every)) tell_samples();
      const bool decided = decide_end();
      const bool is_last = last || ends();
      replica_check_.run(history_.step, /*must=*/false);
      if (is_last || requests_.save || save_again || decided ||
          config::save_is_due(config().checkpoint, history_.step)) {
        save(is_last, save_again);
        if (!is_last) ask();
      }
      memory_.keep(session_, history_);
      tell_profile();
    }
    return finish();
  }

 private:
  const RunConfig& config() const { return session_.config(); }
  /// Returns whether the run is to end now: a person or a rule wants no more steps.
  bool ends() const { return requests_.ends() || risen_ || missed_; }
  /// Returns the step at which this start ends, if nobody asks it to end before.
  int64_t find_last_step() const {
    const int64_t last = longhaul::last_step(config(), total_steps_);
    const auto& ending = history_.schedule->ending;
    return ending ? std::min(last, ending->end) : last;
  }
  bool due(int64_t every) const { return config::is_due(every, history_.step); }

  /// Does one optimizer step; docs/tour.md explains its eight parts. A bad step's update
  /// is not made, and only the position in the data changes. Returns nothing where the
  /// run is to end before the batch is there.
  std::optional<StepOutcome> train_step() {
    const int64_t step = history_.step + 1;
    const system::Stopwatch watch;
    const double waited = session_.world().ledger().waited_seconds();
    system::set_process_title(title_ + std::to_string(step));

    // 1. Batch.
    phase("batch", step);
    data::StepBatch* const next = next_batch(
        session_, loader_, step, run_.log(), [this] { return control_.must_end(); },
        std::exchange(restart_, {}));
    if (next == nullptr) return std::nullopt;
    data::StepBatch& batch = *next;
    const BatchFault fault = hooks_.batch(loader_.cursor());
    const double data_time = watch.seconds();
    const BatchTotals totals = sum_over_replicas(session_, batch);
    StepLoss loss(session_, totals);

    // 2. Schedule, with 3. forward, 4. backward, 5. reduce.
    phase("gradients", step);
    session_.layout().take_own_positions(batch.micro_batches);
    session_.flat().zero_grads();
    runner_.begin_step(batch.micro_batches, loss.scales(fault.gradient));
    session::run_plan(session_, plan_, runner_, hooks_.before_passes(step));
    figures_.note(MemoryPhase::Backward);
    hooks_.after_passes(step);

    // 6. Clip. Without ep this is the step's one wait for a device: all values that
    // decide about the step come together.
    std::vector<std::vector<double>> sums = session_.layout().read_on_host(
        {runner_.device_loss_sums(),
         session_.optimizer().gradient_squares(session_.parameter_names()),
         runner_.device_router_loads()});
    sums[0] = runner_.sums_of_read(sums[0]);
    sums[1] = session_.optimizer().squares_of_read(session_.parameter_names(), sums[1]);
    for (double& sum : sums[0]) sum *= fault.loss;
    loss.add_up(session_, std::move(sums[0]), sums[1]);
    const double norm = optim::norm_of_sums(sums[1]);
    const session::ExpertLoads loads =
        session::sum_router_loads(session_, sums[2], totals.positions);
    const Verdict verdict =
        guard_.judge(history_.guard, step, loss.loss(), norm, loss.without_targets());

    // 7. Update.
    const double lr = schedule_.lr(step);
    if (verdict.good) update(lr, norm);

    // 8. Advance and record.
    advance(totals.content);
    if (verdict.good) history_.expert_loads = loads.counts;
    share_loads();
    const double seconds = watch.seconds();
    tell_record(seconds, session_.world().ledger().waited_seconds() - waited);
    run::StepRecord record;
    record.step = step;
    record.attempt = start_.attempt();
    record.applied = verdict.good;
    record.step_time = seconds;
    record.data_time = data_time;
    record.tokens = static_cast<double>(history_.tokens);
    record.loss = loss.loss();
    record.losses = loss.terms();
    static_cast<run::PairFigures&>(record) = loss.pairs(session_);
    record.grad_norm = norm;
    record.lr = lr;
    record.epoch = loader_.epoch();
    record.data_hash = static_cast<uint64_t>(totals.content);
    router_log_.tell(loads, record);
    if (verdict.good && due(config().log.layer_norms_every)) {
      run_.event(layer_norms(session_.model().description, session_.parameter_names(),
                             sums[1], step));
    }
    return StepOutcome{record, verdict};
  }

  /// Ends a run that still waits for its next batch.
  void end_before_step() {
    ask();
    save(/*ends=*/true, checkpoints_.settle());
  }

  /// Gives the routers the loads of the last step, if these loads balance the experts.
  void share_loads() {
    if (config().experts.balance == BalanceKind::Global) {
      runner_.set_shares(session::expert_shares(session_, history_.expert_loads));
    }
  }

  void update(double lr, double norm) {
    phase("update", history_.step + 1);
    capture_.before_change();
    session_.optimizer().step(lr, optim::clip_coefficient(norm, config().optimizer.clip),
                              session_.layout().everyone());
    session_.replicas().share_weights(parallel::DataParallel::Written::Trained);
    figures_.note(MemoryPhase::Update);
    hooks_.updated(history_.step + 1);
  }

  /// Writes the profile of the step that has ended, where the step was profiled.
  void tell_profile() {
    if (const auto profile = hooks_.end()) run_.event(*profile);
  }

  /// Records the seconds of a step and of its waits, for whoever watches this rank.
  void tell_record(double seconds, double waited) {
    if (run::RankRecord* record = session_.world().ledger().record()) {
      record->step_done(seconds, seconds - waited);
    }
  }

  /// Lets rank 0 end a run that misses run.expect or run.golden. Collective.
  void judge_step(const run::StepRecord& record, bool last) {
    if (!config().run.expect && !config().run.golden) return;
    const char* stops = nullptr;
    for (Miss& miss :
         expectations_ ? expectations_->look(record, last) : std::vector<Miss>{}) {
      run_.log().warning(miss.why);
      run_.event(miss.event, std::move(miss.fields));
      if (miss.stops) stops = miss.key;
    }
    missed_ = session_.world().any(stops != nullptr);
    if (stops != nullptr) missed_key_ = stops;
  }

  /// Takes the end that run.until or run.budget set, once it must be known. Returns true
  /// if it was decided now and a save is to keep it. Collective.
  bool decide_end() {
    const auto decided = run_end_->look(session_, history_, total_steps_,
                                        checkpoints_.longest(), validation_seconds_);
    if (!decided) return false;
    schedule_ = optim::RunSchedule(*history_.schedule);
    last_step_ = find_last_step();
    run_.tell_ending(*decided, schedule_, last_step_);
    return !config::saves_once(config().checkpoint);
  }

  /// Acts on a bad step as the settings say. Returns true where the run goes back.
  bool rolls_back(const StepOutcome& outcome) {
    if (outcome.verdict.good) return false;
    run_.record_bad_step(history_, outcome);
    guard_.stop_if_told(outcome.verdict, history_.guard, history_.step);
    if (outcome.verdict.action != BadStepPolicy::Rollback) return false;
    phase("rollback", history_.step);
    checkpoints_.drain();
    capture_.before_change();
    const int64_t from = history_.step;
    const int64_t steps = config().resilience.rollback_steps;
    history_ = roll_back(session_, start_, run_, history_, steps);
    saved_step_ = history_.step;
    // The step to which the run went back may have another batch size than the steps
    // after it. Then run.epochs end at another step.
    total_steps_ = total_steps(session_, history_);
    last_step_ = find_last_step();
    share_loads();
    schedule_ = optim::RunSchedule(*history_.schedule);
    checkpoints_.find_newest();
    memory_.forget(session_);
    restart_ = [this] {
      loader_.restart(
          loader_options(session_, /*prefetch=*/true, history_.step + 1, total_steps_),
          history_.cursor);
    };
    run_.event(run::RollbackEvent{.from_step = from,
                                  .to_step = history_.step,
                                  .skipped_from = std::max<int64_t>(1, from - steps + 1),
                                  .skipped_to = from});
    run_.log().warning(
        "ROLLED BACK from step {} to step {}; the batches of the last {} steps are left "
        "out",
        from, history_.step, std::min(from, steps));
    return true;
  }

  data::Loader open_loader() const {
    return {session_.data().train,
            loader_options(session_, /*prefetch=*/true, history_.step + 1, total_steps_),
            history_.cursor};
  }

  /// Writes the event that replicas differ, and forgets the states that were kept in
  /// memory: no such state is sure to be from before the fault.
  void corrupted(const Json& fields) {
    run_.event(run::kCorruptionEvent, fields);
    memory_.forget(session_);
  }

  void stopped_by_file(const char* file) {
    run_.event(run::SignalEvent{.step = history_.step, .signal = {}, .file = file});
    run_.log().info("the file {} was found after step {}", file, history_.step);
  }

  /// Asks what signals and control files want, on all ranks; waits here while PAUSE is
  /// there. Collective.
  void ask() {
    requests_ = control_.ask();
    if (!requests_.pause || requests_.ends()) return;
    phase("paused", history_.step);
    run_.log().info("paused until the file {} is gone", run::kPauseFile);
    while (requests_.pause && !requests_.ends()) {
      if (std::exchange(requests_.save, false)) save(/*ends=*/false, /*again=*/false);
      std::this_thread::sleep_for(kBetweenLooks);
      requests_ = control_.ask();
    }
    run_.event(run::kResumedEvent, {{"step", history_.step}});
    run_.log().info("the pause has ended");
  }

  TrainResult finish() {
    // If run.steps was lowered between two starts, the run may be beyond its last step.
    const bool all_done = history_.step >= last_step_;
    if (!ends()) data_check_.finish();
    checkpoints_.finish();
    session_.replicas().finish_weights();
    memory_.end(session_,
                !ends() || session_.world().any(checkpoints_.has_saved(history_.step)));
    start_.got_through();
    if (missed_) {
      finish_log({0, missed_key_,
                  all_done ? "all its steps are done"
                           : "to go on, raise its tolerance or remove the setting"});
      return {history_.step, TrainEnd::Stopped};
    }
    if (all_done) {
      finish_log({});
      return {history_.step, TrainEnd::Done};
    }
    // A person who made the file STOP wants no new start, whatever signals come as well.
    if (requests_.stop) {
      finish_log({0, run::EndEvent::kByStopFile});
      return {history_.step, TrainEnd::Stopped};
    }
    if (risen_) {
      finish_log(
          {0, run::EndEvent::kByStopAbove, "raise stop_above to go on, or remove it"});
      return {history_.step, TrainEnd::Stopped};
    }
    const char* name = system::signal_name(requests_.signal);
    run_.event(run::SignalEvent{.step = history_.step, .signal = name, .file = {}});
    finish_log({requests_.signal, name});
    return {history_.step, TrainEnd::Interrupted};
  }

  void finish_log(const StopCause& stopped) {
    if (const std::string held = expectations_ ? expectations_->summary() : "";
        !held.empty()) {
      run_.log().info(held);
    }
    run_.record_memory(history_.step, figures_.last_phase_memory(session_));
    run_.finish(session_, history_, stopped, checkpoints_.words_at(history_.step));
    checkpoints_.end_mirror();
  }

  /// Names the phase that this rank is in ("step", "save" ...). Errors of collectives and
  /// the rank's record file repeat the name.
  void phase(std::string_view name, int64_t step) {
    session_.world().ledger().set(name, step);
    hooks_.phase(name);
  }

  void advance(int64_t content) {
    ++history_.step;
    history_.updates = session_.optimizer().updates();
    history_.counts = session_.optimizer().counts();
    history_.tokens += config().batch.global_size * config().data.seq_len;
    history_.batch_hash = data::chain_hash(history_.batch_hash, content);
    history_.cursor = loader_.cursor();
    history_.sources = loader_.source_counts();
  }

  /// Validates; ends early, without a result, when a signal comes to any rank.
  void validate() {
    if (requests_.ends()) return;
    phase(run::kValidationPhase, history_.step);
    const system::Stopwatch watch;
    try {
      evaluate_sets(session_, runner_, run_, history_, [this] {
        end_if_asked(session_.world());
        hooks_.phase("validation batch");
      });
      risen_ = has_risen(session_, run_, history_);
      validation_seconds_ = watch.seconds();
    } catch (const EndedEarly&) {
      requests_ = control_.ask();
    }
  }

  void tell_samples() {
    if (!samples_.wanted() || requests_.ends()) return;
    phase("sample text", history_.step);
    samples_.tell(history_.step);
  }

  /// Makes host memory for saves beside training. On other devices than a CPU each
  /// capture has copies of its own.
  void prepare_saves() {
    const CheckpointSection& saves = config().checkpoint;
    if (!saves.async_ || !session_.device().is_cpu() ||
        !config::save_comes_between(saves, history_.step, last_step_)) {
      return;
    }
    checkpoints_.prepare(capture_.capture(session_.state()).tensors);
  }

  /// Saves a checkpoint. `ends` says that nothing follows that could change the state
  /// while it is written. A step that is saved already is not saved again, unless that
  /// save has failed (`again`).
  void save(bool ends, bool again) {
    if (saving_ == Saving::No || (history_.step == saved_step_ && !again)) return;
    replica_check_.run(history_.step, /*must=*/true);
    phase(run::kSavePhase, history_.step);
    figures_.note(MemoryPhase::BeforeSave);
    checkpoints_.save(
        history_, [this] { return capture_.shared(session_.state()); }, ends);
    figures_.note(MemoryPhase::AfterSave);
    saved_step_ = history_.step;
    control_.saved();
  }

  Saving saving_;
  RunStart& start_;
  RunLog& run_;
  TrainingSession session_;
  History history_;
  int64_t total_steps_;
  int64_t last_step_;
  int64_t saved_step_;
  data::Loader loader_;
  std::function<void()> restart_;  ///< restarts the loader after a rollback
  ShardWaitsEnd shard_waits_end_{session_};
  optim::RunSchedule schedule_;
  layout::PipelinePlan plan_;
  StepHooks hooks_;
  StepFigures figures_;
  session::StageRunner runner_;
  DataCheck data_check_;
  StateCapture capture_;
  PeerMemory memory_;
  RouterLog router_log_;
  StepGuard guard_;
  std::optional<Expectations> expectations_;  ///< rank 0's, where it is asked for
  ReplicaCheck replica_check_;
  SampleText samples_;
  ControlFiles control_;
  RunCheckpoints checkpoints_;
  Requests requests_;
  std::optional<RunEnd> run_end_;    ///< made once the start's event is written
  double validation_seconds_ = 0.0;  ///< of the last one in this start
  bool risen_ = false;               ///< a validation loss is above its stop_above
  bool missed_ = false;              ///< a step is not what run.expect or run.golden says
  std::string missed_key_;           ///< on rank 0: the setting that was missed
  std::string title_;
};

/// Tells the log the current error, and throws the error again. If the run had begun
/// (`running`), the error gets the kind that it has in such a run
/// (Failure::once_running).
[[noreturn]] void end_by_error(RunLog& run, bool running) {
  const auto failure = Failure::of([] { throw; });
  const Failure now = running ? Failure::once_running(*failure) : *failure;
  run.fail(Error(now.kind, now.area, now.message));
  if (now.kind != failure->kind) now.raise();
  throw;
}

}  // namespace

TrainResult run_training(const LoadedConfig& loaded,
                         std::shared_ptr<comm::Communicator> world,
                         const std::function<void()>& on_ready, data::ShardReader* shards,
                         Saving saving, const objects::Access& objects,
                         const std::string& expected, Rehearse rehearse) {
  const MirrorPast past = look_at_mirror(loaded.config, *world);
  RunStart start(loaded.config.run.dir, *world, past, expected);
  restore_history(loaded.config, past, start, *world);
  RunLog run(loaded, start, *world);
  std::unique_ptr<Trainer> trainer;
  bool running = start.has_begun();
  try {
    refuse_foreign_start(loaded.config, start, *world);
    trainer = std::make_unique<Trainer>(start, run, loaded, std::move(world), shards,
                                        saving, objects, rehearse);
    if (on_ready) on_ready();
    running = true;
    return trainer->run();
  } catch (const EndedEarly&) {
    run.log().info("the run ends before the first step, because it was asked to end");
    return {0, TrainEnd::Interrupted};
  } catch (const std::exception&) {
    end_by_error(run, running);
  }
}

}  // namespace longhaul::train
