#include "longhaul/checkpoint/write/background_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "longhaul/base/failure.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/write/commit_protocol.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/run/files.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/system/signals.h"

namespace longhaul::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kShortestSleep = milliseconds(1);
constexpr auto kLongestSleep = milliseconds(50);
// A rank that waits for the others checks this often whether its start still owns the
// run.
constexpr auto kLockLook = milliseconds(500);
// The end of a run that failed waits this long for its last save.
constexpr auto kLastSave = std::chrono::minutes(2);
constexpr auto kLastCopy = std::chrono::seconds(10);

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Sleeps longer each time.
class Patience {
 public:
  void rest() {
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, kLongestSleep);
  }

 private:
  milliseconds sleep_ = kShortestSleep;
};

/// Runs a part of a save, and returns its failure. A run that saves has begun already,
/// and what it reads here it has just written itself: whatever the disk or the memory
/// does, the next save may succeed. So such failures are Temporary.
std::optional<Failure> failure_of(const std::function<void()>& work) {
  auto failure = Failure::of(work);
  if (failure && (failure->area == "memory" || failure->kind == ErrorKind::Input)) {
    failure->kind = ErrorKind::Temporary;
  }
  return failure;
}

std::string not_saved(int64_t step, const std::string& why) {
  return fmt::format("step {} was not saved: {}; earlier checkpoints are untouched", step,
                     why);
}

/// Returns the first failure in rank order; its text says how many ranks failed.
std::pair<ErrorKind, std::string> first_failure(const std::vector<std::string>& ranks) {
  std::pair<ErrorKind, std::string> first;
  int failed = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto failure = Failure::from_text(ranks[r]);
    if (!failure || ++failed > 1) continue;
    const std::string of_rank = ranks.size() > 1 ? fmt::format("rank {}: ", r) : "";
    first = {failure->kind, of_rank + failure->in_words()};
  }
  if (failed > 1) first.second += fmt::format(" ({} ranks failed)", failed);
  return first;
}

/// If the directory of checkpoints was removed while the run trained, makes it again with
/// its marker, so that the state in memory can be saved. Called on rank 0 only.
void mark_again(const SaverOptions& options) {
  if (options.marker.run.empty()) return;
  const auto owner = run::read_checkpoints_owner(options.dir);
  if (owner == options.marker.run) return;
  if (owner) {
    fail_temporary("checkpoint", "{} now belongs to another run ({})",
                   options.dir.string(), *owner);
  }
  make_directories_durable(options.dir);
  run::write_checkpoints_marker(options.dir, options.marker);
  if (!options.tell) return;
  options.tell(
      fmt::format("CHECKPOINTS GONE: {} was replaced or removed while the run trained; "
                  "the next checkpoint will be the only one",
                  options.dir.string()));
}

/// Makes the step directory on rank 0, and returns the target on all ranks. Collective.
SaveTarget prepare_together(const SaverOptions& options, int64_t step,
                            comm::Communicator& world) {
  const std::string text = comm::on_rank_zero(world, [&] {
    SaveTarget target;
    const auto failure = failure_of([&] {
      if (options.lock != nullptr) options.lock->check();
      mark_again(options);
      const fs::path dir = options.dir / run::step_directory_name(step);
      const auto aside = set_stranger_aside(dir, options.marker.run);
      if (aside && options.tell) {
        options.tell(fmt::format("{} was saved by another run: it is kept as {}",
                                 dir.string(), aside->string()));
      }
      target = prepare_step(options.dir, step, options.attempt);
    });
    if (failure) {
      Failure{failure->kind, "checkpoint", not_saved(step, failure->in_words())}.raise();
    }
    return json_text(Json{{"prefix", target.prefix}, {"replaces", target.replaces}});
  });
  const Json agreed = Json::parse(text);
  return {step, options.dir / run::step_directory_name(step),
          agreed.at("prefix").get<std::string>(), agreed.at("replaces").get<bool>()};
}

}  // namespace

void SaveReport::raise() const {
  if (error.empty()) return;
  Failure{kind, "checkpoint", error}.raise();
}

/// Tells a person of a wait that has become long, and again whenever it has become twice
/// as long.
class BackgroundSaver::LongWait {
 public:
  explicit LongWait(const SaverOptions& options)
      : options_(options), next_(options.tell_after_seconds) {}

  void look(const std::string& what) {
    const double seconds = seconds_between(begun_, Clock::now());
    if (!options_.tell || seconds < next_) return;
    next_ = std::max(2.0 * seconds, 1.0);
    options_.tell(
        fmt::format("training has waited {:.0f} s for {}: {} is slow or does not answer",
                    seconds, what, options_.dir.string()));
  }

 private:
  const SaverOptions& options_;
  Clock::time_point begun_ = Clock::now();
  double next_;
};

/// One save on this rank: what its thread reads, and its results.
struct BackgroundSaver::Job {
  const SaverOptions& options;
  SaveTarget target;
  Snapshot snapshot;
  int rank = 0;
  int ranks = 1;
  Clock::time_point begun;
  SaveReport report;

  std::atomic<bool> cancelled = false;
  std::atomic<bool> arrived = false;  // whether the tensors have their bytes
  std::atomic<uint64_t> come_to =
      0;  // counts tensors, blocks and ranks, to show progress
  std::atomic<bool> only_others =
      false;  // on rank 0: whether it waits for the other ranks' files
  std::atomic<bool> ended = false;
  std::optional<Failure> failure;  // valid when `ended` is true
  uint64_t bytes = 0;              // on rank 0
  double durable = 0.0;            // on rank 0: seconds to the durable manifest
  bool committed = false;          // on rank 0
  std::string not_kept;            // on rank 0
  std::thread thread;

  /// Starts the thread. Where the system refuses a thread, the save has failed as by any
  /// other cause.
  void begin() {
    auto refused = failure_of([this] {
      thread = std::thread([this] {
        system::leave_signals_to_main_thread();
        run();
      });
    });
    if (!refused) return;
    failure = std::move(refused);
    ended = true;
  }
  void join() {
    if (thread.joinable()) thread.join();
  }

  void run() {
    const auto look = [this] {
      ++come_to;
      return cancelled.load();
    };
    failure = failure_of([&] {
      if (!arrive()) return;
      // The save was cut short because another rank has failed; that failure is the one
      // to report.
      if (!write_rank(target, rank, snapshot.tensors, look)) return;
      if (rank == 0 && !commit()) return;
      if (options.read_back) read_back(target, rank, look);
    });
    ended = true;
  }

  /// Waits for the tensors' bytes. Returns false when the save was cancelled.
  bool arrive() {
    struct Cancelled {};
    try {
      if (snapshot.ready) {
        snapshot.ready([this] {
          if (cancelled) throw Cancelled();
        });
      }
    } catch (const Cancelled&) {
      return false;
    }
    arrived = true;
    return true;
  }

  /// Commits as soon as the files of all ranks are written. Returns false when the save
  /// was cancelled.
  bool commit() {
    Patience patience;
    auto look = Clock::now() + kLockLook;
    only_others = true;
    for (int r = 0; r < ranks; ++r) {
      while (!rank_is_written(target, r)) {
        if (cancelled) return false;
        patience.rest();
        // A successor may have removed the files that a rank had written. Then there is
        // nothing to wait for.
        if (options.lock == nullptr || Clock::now() < look) continue;
        options.lock->check();
        look = Clock::now() + kLockLook;
      }
      ++come_to;
    }
    only_others = false;
    bytes = commit_step(target, {options.attempt, options.marker.run, options.build,
                                 options.layout, std::move(snapshot.state),
                                 std::move(snapshot.files), ranks, options.lock});
    durable = seconds_between(begun, Clock::now());
    committed = true;
    note([this] { options.keeps(target.step); });
    return true;
  }

  /// Runs `work`, which calls SaverOptions::keeps. The checkpoint counts even where that
  /// fails.
  void note(const std::function<void()>& work) {
    if (!options.keeps) return;
    if (const auto refused = failure_of(work)) not_kept = refused->message;
  }
};

/// Deletes old checkpoints beside training, on rank 0 only.
struct BackgroundSaver::Cleaner {
  std::mutex mutex;
  std::vector<std::string> notes;
  std::atomic<bool> at_work = false;
  std::atomic<uint64_t> come_to = 0;  // counts files, to show progress
  std::thread thread;

  void join() {
    if (thread.joinable()) thread.join();
  }
  ~Cleaner() { join(); }
};

BackgroundSaver::BackgroundSaver(SaverOptions options, comm::Communicator& world)
    : options_(std::move(options)),
      world_(world),
      cleaner_(std::make_unique<Cleaner>()) {}

BackgroundSaver::~BackgroundSaver() {
  if (!job_) return;
  const auto begun = Clock::now();
  const auto may_end = [&] {
    const auto waited = Clock::now() - begun;
    return job_->arrived ? waited < kLastSave : waited < kLastCopy;
  };
  Patience patience;
  while (!job_->ended && may_end()) patience.rest();
  cancel();
}

/// Ends the save under way. Nobody will ask for its result. So if it was not committed,
/// its files are removed here.
void BackgroundSaver::cancel() {
  job_->cancelled = true;
  job_->join();
  if (job_->rank == 0 && !job_->committed) abandon_step(job_->target);
  job_.reset();
}

void BackgroundSaver::prepare(const std::vector<StateTensor>& tensors) {
  staging_.reserve(staging_bytes(tensors));
}

void BackgroundSaver::start(const std::function<Snapshot()>& capture,
                            std::optional<SaveReport>& before) {
  const auto called = Clock::now();
  before = wait();
  const auto begun = Clock::now();
  Snapshot snapshot = capture();
  const SaveTarget target = prepare_together(options_, snapshot.step, world_);
  if (!snapshot.owner) {
    if (snapshot.ready) {
      std::exchange(snapshot.ready, nullptr)([this] { world_.progress(); });
    }
    snapshot.tensors = staging_.copy(snapshot.tensors, options_.copy_threads);
  }
  job_ = std::make_unique<Job>(options_, target, std::move(snapshot), world_.rank(),
                               world_.size(), called);
  job_->report.step = target.step;
  job_->report.path = target.dir;
  job_->report.waited = seconds_between(called, begun);
  job_->begin();
  job_->report.stall = seconds_between(called, Clock::now());
}

std::optional<SaveReport> BackgroundSaver::poll() {
  if (!job_) return std::nullopt;
  const bool ended = job_->ended;
  const bool failed = ended && job_->failure;
  std::array<int64_t, 2> sums = {ended ? 0 : 1, failed ? 1 : 0};
  world_.all_reduce_wait(sums, comm::ReduceOp::Sum);
  if (sums[0] > 0 && sums[1] == 0) return std::nullopt;
  return settle(sums[1] > 0);
}

std::optional<SaveReport> BackgroundSaver::settle(bool failed) {
  job_->cancelled = failed;
  job_->join();
  const std::unique_ptr<Job> job = std::move(job_);
  SaveReport report = job->report;
  if (run::RankRecord* record = world_.ledger().record()) {
    record->lasted(run::kSaveWaitPhase, seconds_between(job->begun, Clock::now()));
  }
  if (failed) {
    const auto [kind, why] =
        first_failure(world_.gather_strings(Failure::to_text(job->failure)));
    report.error = not_saved(report.step, why);
    report.kind = kind;
    report.mine = job->failure.has_value();
    if (world_.rank() == 0) {
      const auto mine = failure_of([&] {
        if (options_.lock != nullptr) options_.lock->check();
        if (job->committed) withdraw_step(job->target);
      });
      if (!mine) abandon_step(job->target);
      if (!mine && job->committed) {
        job->note([&] {
          const auto newest = find_latest(options_.dir);
          options_.keeps(newest ? std::optional(newest->step) : std::nullopt);
        });
      }
    }
    world_.barrier_wait();
    return report;
  }
  std::array<double, 4> figures = {static_cast<double>(job->bytes), job->durable,
                                   report.stall, report.waited};
  world_.broadcast({figures.data(), 4, format::DType::F64}, 0)->wait();
  report.bytes = static_cast<uint64_t>(figures[0]);
  report.seconds = figures[1];
  report.stall = figures[2];
  report.waited = figures[3];
  report.not_kept = job->not_kept;
  verified_.insert(report.step);
  if (world_.rank() == 0) start_cleaning();
  return report;
}

std::optional<SaveReport> BackgroundSaver::wait() {
  LongWait told(options_);
  std::optional<SaveReport> report;
  try {
    if (job_) report = wait_for_job(told);
    // Rank 0 may need minutes to delete old checkpoints.
    wait_for_cleaner(told);
  } catch (...) {
    // A rank is lost. The caller may free its bytes now, so no thread may still read
    // them.
    if (job_ && job_->snapshot.owner) cancel();
    throw;
  }
  cleaner_->join();
  return report;
}

SaveReport BackgroundSaver::wait_for_job(LongWait& told) {
  const int64_t step = job_->report.step;
  comm::Polling polling(world_.ledger(), run::kSaveWaitPhase,
                        {"checkpoint", "save", step, 0, {}});
  Patience patience;
  while (true) {
    told.look(fmt::format("the checkpoint of step {}", step));
    polling.look(job_->come_to, job_->ended || job_->only_others);
    if (auto report = poll()) return *std::move(report);
    if (options_.look) options_.look();
    patience.rest();
  }
}

void BackgroundSaver::wait_for_cleaner(LongWait& told) {
  ++deletion_waits_;
  if (!cleaning_somewhere()) return;
  comm::Polling polling(world_.ledger(), run::kSaveWaitPhase,
                        {"deletions", "wait", deletion_waits_, 0, {}});
  Patience patience;
  do {
    told.look("the deletion of old checkpoints");
    polling.look(cleaner_->come_to, !cleaner_->at_work);
    patience.rest();
  } while (cleaning_somewhere());
}

bool BackgroundSaver::cleaning_somewhere() {
  int64_t at_work = cleaner_->at_work ? 1 : 0;
  world_.all_reduce_wait({&at_work, 1, format::DType::I64}, comm::ReduceOp::Sum);
  return at_work > 0;
}

void BackgroundSaver::start_cleaning() {
  cleaner_->join();
  cleaner_->at_work = true;
  const auto refused = failure_of([&] {
    cleaner_->thread =
        std::thread([cleaner = cleaner_.get(), dir = options_.dir,
                     retention = Retention{
                         options_.keep, options_.milestone_every, verified_,
                         options_.lock, [this] { ++cleaner_->come_to; }, options_.held}] {
          system::leave_signals_to_main_thread();
          std::vector<std::string> notes;
          const auto failure = failure_of([&] {
            for (const fs::path& gone : apply_retention(dir, retention)) {
              notes.push_back("checkpoint deleted: " + gone.string());
            }
          });
          if (failure) {
            notes.push_back("old checkpoints were not deleted: " + failure->in_words());
          }
          const std::lock_guard lock(cleaner->mutex);
          for (std::string& note : notes) cleaner->notes.push_back(std::move(note));
          cleaner->at_work = false;
        });
  });
  if (!refused) return;
  const std::lock_guard lock(cleaner_->mutex);
  cleaner_->notes.push_back("old checkpoints were not deleted: " + refused->in_words());
  cleaner_->at_work = false;
}

std::vector<std::string> BackgroundSaver::take_notes() {
  const std::lock_guard lock(cleaner_->mutex);
  return std::move(cleaner_->notes);
}

SaveReport save_checkpoint(SaverOptions options, Snapshot snapshot,
                           comm::Communicator& world) {
  // The caller's bytes stay while this function waits, so nothing has to be copied.
  if (!snapshot.owner) snapshot.owner = std::make_shared<int>(0);
  BackgroundSaver saver(std::move(options), world);
  std::optional<SaveReport> none;
  saver.start(snapshot, none);
  const std::optional<SaveReport> report = saver.wait();
  // A supervisor gets the error from the rank that has failed.
  if (!report->error.empty() && !report->mine) world.ledger().failed_elsewhere();
  report->raise();
  return *report;
}

}  // namespace longhaul::checkpoint
