#include "longhaul/checkpoint/mirror/mirror_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kFirstLook = milliseconds(200);
constexpr auto kLongestPause = milliseconds(5000);
// Rank 0 names a step in a file (Turn). Each other rank answers with a file whose name
// begins with one of these prefixes.
constexpr std::string_view kFailurePrefix = "mirror_failure_";
constexpr std::string_view kSentPrefix = "mirror_sent_";

/// Returns the name of the file that says that a rank has sent its files in a turn.
std::string sent_name(int attempt, int64_t serial, int rank) {
  return fmt::format("{}a{}_{}_rank_{:05}", kSentPrefix, attempt, serial, rank);
}

}  // namespace

MirrorThread::MirrorThread(MirrorOptions options, std::unique_ptr<MirrorStore> store)
    : options_(std::move(options)), store_(std::move(store)) {
  options_.claim.note = [this](const std::string& name) {
    // The marker is written with all its names, since the directory may have been removed
    // after the start.
    run::CheckpointsMarker marker = options_.claim.marker;
    marker.names.push_back(name);
    run::mark_checkpoints(options_.checkpoints, marker);
  };
  if (options_.rank == 0 && !options_.run_dir.empty()) {
    exports_ = std::make_unique<MirrorExports>(
        *store_, options_.run_dir, options_.checkpoints, [this](const std::string& line) {
          report({.kind = MirrorReport::Kind::Note, .message = line});
        });
  }
  thread_ = std::thread([this] {
    system::leave_signals_to_main_thread();
    run();
  });
}

MirrorThread::~MirrorThread() { stop(); }

void MirrorThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  if (exports_) exports_->end();
  store_->stop();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  exports_.reset();
}

void MirrorThread::committed(int64_t step, bool if_absent) {
  const std::lock_guard lock(mutex_);
  committed_ = step;
  // A run that has gone back saves a step a second time. So `step` and later steps do not
  // count as served any more.
  served_ = std::min(served_, step - 1);
  comes_again_ = false;
  if (options_.rank == 0) {
    if (queued_ && queued_->step != step) {
      reports_.push_back({.kind = MirrorReport::Kind::Behind, .step = queued_->step});
    }
    retry_.reset();
    queued_ = Wanted{step, if_absent};
  }
  changed_.notify_all();
}

void MirrorThread::went_back(int64_t step) {
  if (options_.rank > 0) return;
  const std::lock_guard lock(mutex_);
  if (queued_ && queued_->step > step) queued_.reset();
  if (retry_ && retry_->wanted.step > step) retry_.reset();
  back_to_ = step;
  changed_.notify_all();
}

void MirrorThread::send_run_files() {
  if (options_.rank > 0) return;
  const std::lock_guard lock(mutex_);
  run_files_wanted_ = true;
  changed_.notify_all();
}

void MirrorThread::try_no_more() {
  const std::lock_guard lock(mutex_);
  tries_no_more_ = true;
  if (retry_ && !queued_) queued_ = retry_->wanted;
  retry_.reset();
  changed_.notify_all();
}

bool MirrorThread::busy() const {
  const std::lock_guard lock(mutex_);
  if (stopped_) return false;
  if (options_.rank > 0) return at_work_ || (served_ < committed_ && !comes_again_);
  return at_work_ || queued_ || back_to_ || run_files_wanted_;
}

bool MirrorThread::holds(int64_t step) const {
  const std::lock_guard lock(mutex_);
  if (stopped_ || newest_ >= step) return false;
  return under_way_ == step || (queued_ && queued_->step == step) || committed_ == step;
}

std::optional<int64_t> MirrorThread::newest() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

std::vector<MirrorReport> MirrorThread::take_reports() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reports_, {});
}

void MirrorThread::report(MirrorReport report) {
  const std::lock_guard lock(mutex_);
  reports_.push_back(std::move(report));
}

void MirrorThread::run() {
  // An error here does not end the training.
  const auto failure = Failure::of([&] { options_.rank == 0 ? lead() : follow(); });
  if (!failure) return;
  report({.kind = MirrorReport::Kind::Failed, .message = failure->in_words()});
  const std::lock_guard lock(mutex_);
  stopped_ = true;
}

/// Does the work of rank 0: one request of the training thread after the other. While
/// there is no request, it tries the step again that has failed.
void MirrorThread::lead() {
  while (true) {
    std::optional<int64_t> back;
    std::optional<Wanted> wanted;
    bool files = false;
    {
      std::unique_lock lock(mutex_);
      at_work_ = false;
      under_way_.reset();
      const auto asked = [&] {
        return stopped_ || queued_ || back_to_ || run_files_wanted_;
      };
      bool tries_again = false;
      if (retry_) {
        const auto at = retry_->at;
        tries_again = !changed_.wait_until(lock, at, asked);
        // The retry is cancelled when the run ends.
        if (tries_again && !retry_) continue;
      } else {
        changed_.wait(lock, asked);
      }
      if (stopped_) return;
      back = std::exchange(back_to_, std::nullopt);
      wanted = std::exchange(queued_, std::nullopt);
      if (tries_again) wanted = retry_->wanted;
      files = std::exchange(run_files_wanted_, false);
      at_work_ = true;
      if (wanted) under_way_ = wanted->step;
    }
    if (back) go_back(*back);
    if (wanted) mirror(*wanted);
    if (!files && !wanted) continue;
    copy_run_files();
    if (claimed_ && exports_) exports_->look();
  }
}

void MirrorThread::mirror(const Wanted& wanted) {
  MirrorReport done;
  const auto failure = Failure::of([&] { done = mirror_step(wanted); });
  const bool passes = failure && failure->kind == ErrorKind::Temporary;
  const double again = passes ? try_later(wanted) : 0.0;
  const auto untold =
      Failure::of([&] { tell_turn({.step = wanted.step, .again = again > 0.0}); });
  if (stopped_) return;
  if (failure) {
    report({.kind = MirrorReport::Kind::Failed,
            .step = wanted.step,
            .again = again,
            .message = failure->in_words()});
  }
  {
    const std::lock_guard lock(mutex_);
    if (again == 0.0) retry_.reset();
    if (!failure) newest_ = wanted.step;
  }
  if (failure) return;
  if (done.bytes > 0) report(std::move(done));
  const auto thinned = Failure::of([&] {
    for (const int64_t step :
         thin_out_mirror(known(), options_.keep, options_.milestone_every)) {
      report({.kind = MirrorReport::Kind::Note,
              .step = step,
              .message = fmt::format("checkpoint deleted in the mirror: {}/{}",
                                     store_->place(), run::step_directory_name(step))});
    }
  });
  for (const auto& other : {thinned, untold}) {
    if (!other || stopped_) continue;
    report({.kind = MirrorReport::Kind::Note, .message = other->in_words()});
  }
}

/// Lets a step wait to be tried again. Returns the seconds of the wait, or 0 where the
/// step is not wanted any more.
double MirrorThread::try_later(const Wanted& wanted) {
  const std::lock_guard lock(mutex_);
  const bool gone_back_on = back_to_ && *back_to_ < wanted.step;
  if (stopped_ || tries_no_more_ || queued_ || gone_back_on) return 0.0;
  const double wait =
      retry_ ? std::min(2.0 * retry_->wait, options_.longest_wait) : options_.first_wait;
  const std::chrono::duration<double> seconds(wait);
  retry_ = Retry{wanted, wait,
                 Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds)};
  return wait;
}

/// Mirrors one step. A report of 0 bytes means that the mirror had it already.
MirrorReport MirrorThread::mirror_step(const Wanted& wanted) {
  const system::Stopwatch watch;
  const int64_t retries = store_->retries();
  const fs::path dir = options_.checkpoints / run::step_directory_name(wanted.step);
  const Manifest manifest = Manifest::read(dir);
  claim(Name::New);
  // Since the last step was mirrored, files may have arrived that an earlier start was
  // still sending. So the mirror is listed again.
  known_.reset();
  MirrorReport done{.step = wanted.step};
  if (wanted.if_absent) {
    const auto there = known().read(wanted.step);
    if (there && there->manifest.to_json() == manifest.to_json()) {
      // An earlier start may have ended before it could take later steps from the mirror.
      supersede_mirror(known(), wanted.step, options_.attempt);
      return done;
    }
  }
  begin_mirror_step(known(), manifest, options_.attempt);
  tell_turn({.step = wanted.step, .open = true});
  done.bytes =
      send_mirror_files(*store_, dir, manifest, options_.rank, options_.ranks, [&] {
        ++come_to_;
        return stopped_.load();
      });
  const auto look = [&] {
    if (stopped_) fail_temporary("mirror", "the run ends");
    if (options_.lock != nullptr) options_.lock->check();
    look_for_failures();
    ++come_to_;
  };
  wait_for_ranks(look);
  // A start in another directory may have claimed the mirror since, and relies on the
  // steps that it found there. So the claim is checked again before the manifest is
  // written.
  claim(Name::Kept);
  end_mirror_step(known(), manifest, kFilesSeconds, look);
  done.bytes = manifest.total_bytes();
  done.seconds = watch.seconds();
  done.retries = store_->retries() - retries;
  return done;
}

/// Makes sure that this start is the one that writes the mirror: gives the mirror a new
/// name, or proves that the mirror still has this start's last name. Throws where another
/// run has taken the mirror, or a start of this run in another directory.
void MirrorThread::claim(Name name) {
  if (options_.lock != nullptr) options_.lock->check();
  claimed_ = false;
  if (name == Name::New) {
    claim_mirror(*store_, options_.claim);
  } else {
    prove_claim(*store_, options_.claim);
  }
  claimed_ = true;
}

/// Returns what is known of the mirror. Lists the mirror only where nothing is known of
/// it.
MirrorListing& MirrorThread::known() {
  if (!known_) known_.emplace(*store_, options_.claim.marker.run);
  return *known_;
}

void MirrorThread::go_back(int64_t step) {
  const auto failure = Failure::of([&] {
    claim(Name::New);
    MirrorListing listing(*store_, options_.claim.marker.run);
    for (const int64_t later : supersede_mirror(listing, step, options_.attempt)) {
      report({.kind = MirrorReport::Kind::Note,
              .step = later,
              .message = fmt::format(
                  "{}/{} is later than step {}, from which the run goes on: no start "
                  "takes it any more",
                  store_->place(), run::step_directory_name(later), step)});
    }
  });
  {
    const std::lock_guard lock(mutex_);
    if (newest_ > step) newest_.reset();
  }
  // If this fails, the next step that is mirrored takes the later steps away.
  if (failure && !stopped_) {
    report({.kind = MirrorReport::Kind::Failed,
            .step = step,
            .message = "later steps were not taken away: " + failure->in_words()});
  }
}

void MirrorThread::copy_run_files() {
  if (!claimed_ || options_.run_dir.empty()) return;
  for (const std::string& name : options_.run_files) {
    if (stopped_) return;
    const fs::path file = options_.run_dir / name;
    const fs::path copy = options_.run_dir / ".mirrored";
    // The run goes on writing these files, so a copy is sent.
    const auto failure = Failure::of([&] {
      if (!fs::exists(file)) return;
      copy_file_durable(file, copy);
      store_->put(copy, "run/" + name);
    });
    try_remove(copy);
    if (!failure || stopped_) continue;
    report({.kind = MirrorReport::Kind::Note,
            .message = fmt::format("{} was not copied to the mirror: {}", name,
                                   failure->message)});
    return;
  }
}

void MirrorThread::tell_turn(const Turn& turn) {
  if (options_.ranks == 1) return;
  ++serial_;
  // Removes the other ranks' answers to the turn that ends, and to earlier turns.
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(options_.checkpoints, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kFailurePrefix) || name.starts_with(kSentPrefix)) {
      fs::remove(entry.path(), ignored);
    }
  }
  write_text_atomic(options_.checkpoints / run::kMirrorTurnFile,
                    json_text(Json{{"attempt", options_.attempt},
                                   {"serial", serial_},
                                   {"step", turn.step},
                                   {"open", turn.open},
                                   {"again", turn.again}}) +
                        "\n");
}

std::optional<MirrorThread::Turn> MirrorThread::read_turn() const {
  const fs::path path = options_.checkpoints / run::kMirrorTurnFile;
  std::optional<Turn> turn;
  // If the file cannot be read now, the next look reads it.
  const auto failure = Failure::of([&] {
    if (!fs::exists(path)) return;
    const Json json = parse_json(longhaul::read_text(path, 4096), path.string());
    if (json.at("attempt").get<int>() != options_.attempt) return;
    turn = Turn{json.at("serial").get<int64_t>(), json.at("step").get<int64_t>(),
                json.at("open").get<bool>(), json.at("again").get<bool>()};
  });
  return failure ? std::nullopt : turn;
}

/// Throws the error that another rank has reported for this turn.
void MirrorThread::look_for_failures() const {
  if (options_.ranks == 1) return;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(options_.checkpoints, ignored)) {
    if (!entry.path().filename().string().starts_with(kFailurePrefix)) continue;
    std::optional<Failure> failure;
    Failure::of([&] {
      const Json json =
          parse_json(longhaul::read_text(entry.path(), 1 << 16), entry.path().string());
      const bool now = json.at("attempt").get<int>() == options_.attempt &&
                       json.at("serial").get<int64_t>() == serial_;
      if (!now) return;
      const bool passes = json.at("passes").get<bool>();
      failure = {passes ? ErrorKind::Temporary : ErrorKind::Input, "mirror",
                 json.at("message").get<std::string>()};
    });
    if (failure) failure->raise();
  }
}

/// Waits until the other ranks have sent and compared their files of this turn. A listing
/// of the mirror does not prove that: it also names files that a rank is about to find
/// wrong and remove, and files that an earlier turn has left.
void MirrorThread::wait_for_ranks(const std::function<void()>& look) {
  const system::Stopwatch watch;
  auto pause = kFirstLook;
  for (int rank = 1; rank < options_.ranks;) {
    look();
    while (rank < options_.ranks &&
           is_seen(options_.checkpoints / sent_name(options_.attempt, serial_, rank))) {
      ++rank;
    }
    if (rank == options_.ranks) return;
    if (watch.seconds() > kFilesSeconds) {
      fail_temporary("mirror", "rank {} has not sent its files within {:.0f} s", rank,
                     kFilesSeconds);
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, pause, [&] { return stopped_.load(); });
    pause = std::min(2 * pause, kLongestPause);
  }
}

/// Does the work of the other ranks: while a step may be wanted, looks for rank 0's file,
/// which names the step (Turn).
void MirrorThread::follow() {
  auto pause = kFirstLook;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      at_work_ = false;
      const int64_t known = committed_;
      if (served_ >= committed_) {
        changed_.wait(lock, [&] { return stopped_ || served_ < committed_; });
        pause = kFirstLook;
      } else {
        changed_.wait_for(lock, pause, [&] { return stopped_ || committed_ != known; });
        pause = std::min(2 * pause, kLongestPause);
      }
      if (stopped_) return;
    }
    const auto turn = read_turn();
    if (!turn || turn->serial <= serial_) continue;
    serial_ = turn->serial;
    pause = kFirstLook;
    {
      const std::lock_guard lock(mutex_);
      at_work_ = turn->open;
      comes_again_ = turn->again;
      // If the turn's step is later than the newest committed step, the run has gone back
      // since the turn began.
      const bool over = !turn->open && !turn->again && turn->step <= committed_;
      if (over) served_ = std::max(served_, turn->step);
    }
    if (turn->open) take_turn(*turn);
  }
}

void MirrorThread::take_turn(const Turn& turn) {
  const auto failure = Failure::of([&] {
    const fs::path dir = options_.checkpoints / run::step_directory_name(turn.step);
    send_mirror_files(*store_, dir, Manifest::read(dir), options_.rank, options_.ranks,
                      [&] {
                        ++come_to_;
                        return stopped_.load();
                      });
    if (stopped_) return;
    write_text_atomic(
        options_.checkpoints / sent_name(options_.attempt, turn.serial, options_.rank),
        "");
  });
  if (!failure || stopped_) return;
  Failure::of([&] {
    write_text_atomic(
        options_.checkpoints / fmt::format("{}{:05}.json", kFailurePrefix, options_.rank),
        json_text(Json{{"attempt", options_.attempt},
                       {"serial", turn.serial},
                       {"passes", failure->kind == ErrorKind::Temporary},
                       {"message", fmt::format("rank {}: {}", options_.rank,
                                               failure->in_words())}}));
  });
}

}  // namespace longhaul::checkpoint
