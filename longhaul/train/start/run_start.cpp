#include "longhaul/train/start/run_start.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/home.h"
#include "longhaul/comm/agree.h"
#include "longhaul/run/files.h"

namespace longhaul::train {
namespace {

/// Returns how many numbers of starts may be used up where the lock, which counts them,
/// was removed; 0 where the lock is there.
int starts_without_lock(const fs::path& run_dir) {
  if (is_seen(run_dir / run::kRunLockFile)) return 0;
  const auto before = run::RunPast::read(run_dir);
  return static_cast<int>(std::min<int64_t>(before ? before->loads : 0, 1 << 30));
}

}  // namespace

RunStart::RunStart(const fs::path& run_dir, comm::Communicator& world,
                   const MirrorPast& mirror, std::string expected)
    : run_dir_(run_dir), expected_(std::move(expected)) {
  const bool known = checkpoint::find_run(run_dir, world).has_value();
  const Json told = Json::parse(comm::on_rank_zero(world, [&] {
    const auto failure = Failure::of([&] {
      checkpoint::refuse_dangling(run_dir);
      run::RunLockOptions options = run::run_lock_options();
      options.least_attempt = std::max(mirror.attempt, starts_without_lock(run_dir)) + 1;
      lock_.emplace(run::RunLock::acquire(run_dir, options));
      lock_->set_counts(false);
      starts_.emplace(run_dir);
      const auto record = run::RunPast::read(run_dir);
      past_ = record ? *record : run::RunPast::begin();
      if (!record && !mirror.run.empty()) past_.run = mirror.run;
      if (!known) past_.write(run_dir);
    });
    if (failure) (known ? Failure::once_running(*failure) : *failure).raise();
    return json_text(Json{
        {"attempt", lock_->attempt()}, {"run", past_.run}, {"begun", past_.loads > 0}});
  }));
  attempt_ = told.at("attempt").get<int>();
  begun_ = told.at("begun").get<bool>();
  past_.run = told.at("run").get<std::string>();
  checkpoint::prove_run_dir(run_dir, past_.run, known ? 0.0 : checkpoint::kNameSeconds,
                            world);
}

void RunStart::take_over(const std::string& run) {
  past_.run = run;
  past_.write(run_dir_);
}

void RunStart::begin_anew() {
  begun_anew_ = true;
  past_ = past_.begin_anew();
  past_.write(run_dir_);
}

void RunStart::prove_expected(comm::Communicator& world) const {
  comm::on_rank_zero(world, [&] {
    if (expected_.empty() || past_.run == expected_ || past_.has_given_up(expected_))
      return;
    fail_temporary("run directory",
                   "an earlier start of this job trained run {} in {}, which {} does "
                   "not show, and its checkpoints are not found either: the run does "
                   "not begin anew by itself. Mount the directory there and let the job "
                   "start again; a new job begins anew",
                   expected_, run_dir_.string(), host_name());
  });
}

void RunStart::keeps(std::optional<int64_t> newest, const fs::path& dir) {
  std::string place = run::RunPast::place_of(dir);
  if (past_.newest == newest && past_.checkpoints == place) return;
  past_.newest = newest;
  past_.checkpoints = std::move(place);
  past_.write(run_dir_);
}

void RunStart::loaded() {
  if (!lock_) return;
  ++past_.loads;
  past_.write(run_dir_);
}

int RunStart::failed_starts(const fs::path& step_dir) const {
  const auto step = run::step_of(step_dir);
  return starts_ && step ? starts_->failed_starts(*step) : 0;
}

void RunStart::begin(int64_t step) {
  if (starts_) starts_->begin(step);
}

void RunStart::got_through() {
  if (starts_) starts_->done();
}

}  // namespace longhaul::train
