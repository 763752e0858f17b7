#include "longhaul/checkpoint/saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/signals.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/run_lock.h"
#include "longhaul/checkpoint/save_files.h"

namespace longhaul::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kShortestSleep = milliseconds(1);
constexpr auto kLongestSleep = milliseconds(50);
// How often a rank that waits for the others looks whether the run is still its own.
constexpr auto kLockLook = milliseconds(500);
// How long the end of a run that failed waits for its last save.
constexpr auto kLastSave = std::chrono::minutes(2);

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

/// What a part of a save that may fail left behind, in a form that ranks can exchange.
struct Outcome {
  std::string error;
  ErrorKind kind = ErrorKind::Temporary;

  template <typename Action>
  static Outcome of(Action action) {
    try {
      action();
      return {};
    } catch (const Error& error) {
      return {error.what(), error.kind()};
    } catch (const fs::filesystem_error& error) {
      const Error meaning = to_error(error);
      return {meaning.what(), meaning.kind()};
    } catch (const std::exception& error) {  // memory
      return {error.what(), ErrorKind::Temporary};
    }
  }
  Json to_json() const { return {{"error", error}, {"kind", static_cast<int>(kind)}}; }
  static Outcome from_json(const Json& json) {
    return {json.at("error").get<std::string>(),
            static_cast<ErrorKind>(json.at("kind").get<int>())};
  }
};

/// Messages may hold a path in any encoding.
std::string to_text(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string not_saved(int64_t step, const std::string& why) {
  return fmt::format("step {} was not saved: {}; earlier checkpoints are untouched", step,
                     why);
}

/// The first failure in rank order, with how many ranks failed.
Outcome first_failure(const std::vector<std::string>& ranks) {
  Outcome result;
  int failed = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Outcome outcome = Outcome::from_json(Json::parse(ranks[r]));
    if (outcome.error.empty()) continue;
    if (++failed == 1) {
      result = outcome;
      if (ranks.size() > 1) result.error = fmt::format("rank {}: {}", r, outcome.error);
    }
  }
  if (failed > 1) result.error += fmt::format(" ({} ranks failed)", failed);
  return result;
}

}  // namespace

void SaveReport::raise() const {
  if (error.empty()) return;
  // By its own type: callers go on after a temporary one.
  if (kind == ErrorKind::Temporary) throw TemporaryError("checkpoint", error);
  throw Error(kind, "checkpoint", error);
}

/// One save on this rank: what its thread reads, and what it leaves.
struct Saver::Job {
  SaveTarget target;
  std::vector<StateTensor> tensors;
  std::shared_ptr<const void> owner;
  CommitContent content;
  int rank = 0;
  bool read_back = true;
  Clock::time_point begun;
  SaveReport report;

  std::atomic<bool> cancelled = false;
  std::atomic<bool> ended = false;
  Outcome outcome;         // valid when ended
  uint64_t bytes = 0;      // rank 0
  double durable = 0.0;    // rank 0: seconds to the durable manifest
  bool committed = false;  // rank 0
  std::thread thread;

  void run() {
    outcome = Outcome::of([&] {
      write_rank(target, rank, tensors, [this] { return cancelled.load(); });
      if (rank == 0 && !commit()) return;
      if (read_back && !cancelled) checkpoint::read_back(target, rank);
    });
    ended = true;
  }

  /// False when it was cancelled.
  bool commit() {
    Patience patience;
    auto look = Clock::now() + kLockLook;
    for (int r = 0; r < content.ranks; ++r) {
      while (!rank_is_written(target, r)) {
        if (cancelled) return false;
        patience.rest();
        // A successor has removed what a rank had written: there is nothing to wait for.
        if (content.lock == nullptr || Clock::now() < look) continue;
        content.lock->check();
        look = Clock::now() + kLockLook;
      }
    }
    bytes = commit_step(target, content);
    durable = seconds_between(begun, Clock::now());
    committed = true;
    return true;
  }
};

/// Deletes old checkpoints beside the training; rank 0.
struct Saver::Cleaner {
  std::mutex mutex;
  std::vector<std::string> notes;
  std::thread thread;

  void join() {
    if (thread.joinable()) thread.join();
  }
  ~Cleaner() { join(); }
};

Saver::Saver(SaverOptions options, comm::Communicator& world)
    : options_(std::move(options)),
      world_(world),
      cleaner_(std::make_unique<Cleaner>()) {}

Saver::~Saver() {
  if (!job_) return;
  const auto deadline = Clock::now() + kLastSave;
  Patience patience;
  while (!job_->ended && Clock::now() < deadline) patience.rest();
  job_->cancelled = true;
  job_->thread.join();
  // Nobody is left to settle it: what is no checkpoint goes.
  if (job_->rank == 0 && !job_->committed) abandon_step(job_->target);
}

void Saver::prepare(const std::vector<StateTensor>& tensors) {
  staging_.reserve(staging_bytes(tensors));
}

void Saver::start(Snapshot snapshot, std::optional<SaveReport>& before) {
  const auto called = Clock::now();
  before = wait();
  const auto begun = Clock::now();
  auto job = std::make_unique<Job>();
  std::string message;
  if (world_.rank() == 0) {
    const Outcome outcome = Outcome::of([&] {
      if (options_.lock != nullptr) options_.lock->check();
      job->target = prepare_step(options_.dir, snapshot.step, options_.attempt);
    });
    Json json = outcome.to_json();
    json["prefix"] = job->target.prefix;
    json["replaces"] = job->target.replaces;
    message = to_text(json);
  }
  const Json agreed = Json::parse(world_.broadcast_string(message, 0));
  job->report.step = snapshot.step;
  job->report.path = options_.dir / step_directory_name(snapshot.step);
  job->report.waited = seconds_between(called, begun);
  const Outcome made = Outcome::from_json(agreed);
  if (!made.error.empty()) {
    job->report.error = not_saved(snapshot.step, made.error);
    job->report.kind = made.kind;
    job->report.raise();
  }
  job->target = {snapshot.step, job->report.path, agreed.at("prefix").get<std::string>(),
                 agreed.at("replaces").get<bool>()};
  job->owner = std::move(snapshot.owner);
  job->tensors = job->owner ? std::move(snapshot.tensors)
                            : staging_.copy(snapshot.tensors, options_.copy_threads);
  job->content = {options_.attempt,
                  options_.build,
                  options_.layout,
                  std::move(snapshot.state),
                  std::move(snapshot.files),
                  world_.size(),
                  options_.lock};
  job->rank = world_.rank();
  job->read_back = options_.read_back;
  job->begun = called;
  job_ = std::move(job);
  job_->thread = std::thread([job = job_.get()] {
    leave_signals_to_main_thread();
    job->run();
  });
  job_->report.stall = seconds_between(called, Clock::now());
}

std::optional<SaveReport> Saver::poll() {
  if (!job_) return std::nullopt;
  const bool ended = job_->ended;
  const bool failed = ended && !job_->outcome.error.empty();
  std::array<int64_t, 2> sums = {ended ? 0 : 1, failed ? 1 : 0};
  world_.all_reduce_wait({sums.data(), 2, DType::I64}, comm::ReduceOp::Sum);
  if (sums[0] > 0 && sums[1] == 0) return std::nullopt;
  return settle(sums[1] > 0);
}

std::optional<SaveReport> Saver::settle(bool failed) {
  job_->cancelled = failed;
  job_->thread.join();
  const std::unique_ptr<Job> job = std::move(job_);
  SaveReport report = job->report;
  if (failed) {
    const Outcome outcome =
        first_failure(world_.gather_strings(to_text(job->outcome.to_json())));
    report.error = not_saved(report.step, outcome.error);
    report.kind = outcome.kind;
    if (world_.rank() == 0) {
      const Outcome mine = Outcome::of([&] {
        if (options_.lock != nullptr) options_.lock->check();
        if (job->committed) withdraw_step(job->target);
      });
      if (mine.error.empty()) abandon_step(job->target);
    }
    world_.barrier_wait();
    return report;
  }
  std::array<double, 4> figures = {static_cast<double>(job->bytes), job->durable,
                                   report.stall, report.waited};
  world_.broadcast({figures.data(), 4, DType::F64}, 0)->wait();
  report.bytes = static_cast<uint64_t>(figures[0]);
  report.seconds = figures[1];
  report.stall = figures[2];
  report.waited = figures[3];
  verified_.insert(report.step);
  if (world_.rank() == 0) start_cleaning();
  return report;
}

std::optional<SaveReport> Saver::wait() {
  Patience patience;
  std::optional<SaveReport> report;
  try {
    while (job_) {
      report = poll();
      if (!report) patience.rest();
    }
  } catch (...) {
    // A rank is lost. The caller's bytes may go now: nobody may still be reading them.
    if (job_ && job_->owner) {
      job_->cancelled = true;
      job_->thread.join();
      job_.reset();
    }
    throw;
  }
  cleaner_->join();
  return report;
}

void Saver::start_cleaning() {
  cleaner_->join();
  cleaner_->thread =
      std::thread([cleaner = cleaner_.get(), dir = options_.dir,
                   retention = Retention{options_.keep, options_.milestone_every,
                                         verified_, options_.lock}] {
        leave_signals_to_main_thread();
        std::vector<std::string> notes;
        const Outcome outcome = Outcome::of([&] {
          for (const fs::path& gone : apply_retention(dir, retention)) {
            notes.push_back("checkpoint deleted: " + gone.string());
          }
        });
        if (!outcome.error.empty()) {
          notes.push_back("old checkpoints were not deleted: " + outcome.error);
        }
        const std::lock_guard lock(cleaner->mutex);
        for (std::string& note : notes) cleaner->notes.push_back(std::move(note));
      });
}

std::vector<std::string> Saver::take_notes() {
  const std::lock_guard lock(cleaner_->mutex);
  return std::move(cleaner_->notes);
}

SaveReport save_checkpoint(SaverOptions options, Snapshot snapshot,
                           comm::Communicator& world) {
  // The caller's bytes stay while this waits: nothing is copied.
  if (!snapshot.owner) snapshot.owner = std::make_shared<int>(0);
  options.read_back = false;
  Saver saver(std::move(options), world);
  std::optional<SaveReport> none;
  saver.start(std::move(snapshot), none);
  const std::optional<SaveReport> report = saver.wait();
  report->raise();
  return *report;
}

}  // namespace longhaul::checkpoint
