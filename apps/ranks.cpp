#include "apps/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "apps/start/other_launcher.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/file.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/config/load.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {
namespace {

/// "1, 3, 4" and, past a few, how many more.
std::string list_of(const std::vector<size_t>& ranks) {
  constexpr size_t kNamed = 8;
  std::vector<std::string> names;
  for (const size_t rank : ranks) names.push_back(std::to_string(rank));
  return listed(names, kNamed);
}

int64_t number_of(const std::string& text) {
  const std::string hex = hash_hex(text).substr(0, 15);
  int64_t number = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), number, 16);
  return number;
}

}  // namespace

void check_same_config(comm::Communicator& world, const RunConfig& config) {
  const std::vector<std::string> hashes = world.gather_strings(config_hash(config));
  std::vector<size_t> others;
  for (size_t r = 1; r < hashes.size(); ++r) {
    if (hashes[r] != hashes[0]) others.push_back(r);
  }
  if (others.empty()) return;
  const std::vector<std::string> texts = world.gather_strings(to_toml(config));
  const size_t other = others.front();
  const auto changes =
      diff_configs(parse_run_config(texts[0], "rank 0's settings").config,
                   parse_run_config(texts[other], "another rank's settings").config);
  LH_ASSERT(!changes.empty(), "settings of ranks 0 and {} have other hashes", other);
  fail_config(
      "config",
      "rank{} {} of {} {} started with other settings than rank 0: {} = {} on rank 0, {} "
      "on rank {}{}; start every rank with the same file and --set",
      others.size() == 1 ? "" : "s", list_of(others), hashes.size(),
      others.size() == 1 ? "was" : "were", changes[0].key, changes[0].old_value,
      changes[0].new_value, other,
      changes.size() == 1 ? "" : fmt::format(" ({} keys differ)", changes.size()));
}

FailureReport::FailureReport(comm::Communicator& world,
                             std::function<void(const std::string&)> say,
                             double patience_seconds)
    : group_(world.split(0, world.rank(), "failures")),
      say_(std::move(say)),
      patience_seconds_(patience_seconds) {}

bool FailureReport::ends_in_time(comm::Work& work) const {
  const system::Stopwatch watch;
  while (!work.test()) {
    if (watch.seconds() > patience_seconds_) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

FailureReport::Meeting FailureReport::meet(const std::string& text) {
  const int64_t mine = number_of(text);
  std::vector<int64_t> all(static_cast<size_t>(group_->size()));
  const comm::WorkPtr gather = group_->all_gather(
      {&mine, 1, format::DType::I64}, {all.data(), group_->size(), format::DType::I64});
  if (!ends_in_time(*gather)) return {};
  return {true, std::ranges::find(all, mine) - all.begin() == group_->rank(),
          std::ranges::count(all, mine) == group_->size()};
}

void FailureReport::report(const Error& error) {
  const std::string text = error.what();
  const std::string with_rank =
      group_->size() == 1
          ? text
          : fmt::format("rank {} of {}: {}", group_->rank(), group_->size(), text);
  Meeting meeting;
  // The area "[comm]" may stand inside the text, not only at its start: code that failed
  // in a wait puts words of its own before the error of communication.
  const bool of_communication = text.find("[comm] ") != std::string::npos;
  if (!of_communication && group_->ledger().under_way() == 0) {
    try {
      meeting = meet(text);
    } catch (const Error&) {
      // Another rank is gone already, so this rank reports its own error.
    }
  }
  if (meeting.speaks) say_(meeting.shared ? text : with_rank);
  if (!meeting.all_came) return;
  try {
    // The first rank that aborts ends the others, so each rank waits until all have
    // reported.
    ends_in_time(*group_->barrier());
  } catch (const Error&) {
    // Another rank has ended before the barrier. All that can be said has been said.
  }
}

int run_ranks(const World& world, const std::function<void(const std::string& line)>& say,
              const std::function<int()>& work,
              const std::function<void(const Error&)>& on_failure) {
  FailureReport failures(*world, say);
  int exit_code = 1;
  try {
    return work();
  } catch (const std::exception& problem) {
    const Error error = to_error(problem);
    exit_code = error.exit_code();
    if (on_failure) on_failure(error);
    failures.report(error);
  }
  // The other ranks may be waiting for this one.
  if (world->size() > 1) world->abort(exit_code);
  return exit_code;
}

int run_together(const objects::Access& objects,
                 const std::function<void(const World& world)>& work,
                 double deadline_seconds) {
  check_launcher();
  comm::CommOptions limits;
  limits.deadline_seconds = deadline_seconds;
  if (comm::detect_launch().by_mpirun) limits.job_ends = mpirun_ends_job;
  const World world = comm::world(comm::Backend::Auto, limits);
  const auto work_and_finish = [&] {
    work(world);
    comm::finish(*world);
    return 0;
  };
  if (world->size() == 1) return work_and_finish();
  const auto say = [&](const std::string& line) {
    fmt::print(stderr, "longhaul: error: {}\n", objects.with_addresses(line));
    std::fflush(stderr);
  };
  return run_ranks(world, say, work_and_finish);
}

std::string mpirun_ends_job() {
  const system::RaisedSignal signal = system::raised_signal();
  if (signal.number != SIGTERM || signal.sender == 0 || signal.sender != ::getppid()) {
    return {};
  }
  return "mpirun ends the job (SIGTERM): another rank has died or failed; look for the "
         "first failure in the other ranks' logs";
}

}  // namespace longhaul::apps
