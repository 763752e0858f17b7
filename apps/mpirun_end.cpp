#include "apps/mpirun_end.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "apps/ranks.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/file.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/process.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
/// A rank whose death made mpirun end the job is gone within this time.
constexpr double kDeathSeconds = 0.5;
/// This process ends so many seconds after SIGTERM: SIGKILL comes after one second.
constexpr double kSaveSeconds = 0.85;

/// Returns the parent of a process that is not dead.
std::optional<int> parent_of(int pid) {
  const auto fields = stat_fields(fmt::format("/proc/{}", pid));
  if (fields.size() < 2 || fields[0] == "Z" || fields[0] == "X") return std::nullopt;
  return whole_number<int>(fields[1]);
}

std::vector<int> children_of(int parent) {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    const auto pid = whole_number<int>(name);
    if (pid && parent_of(*pid) == parent) found.push_back(*pid);
  }
  return found;
}

std::string told_to_end() {
  const std::string left = system::last_words();
  const bool lost = left.ends_with("again");
  return fmt::format(
      "[signal] SIGTERM of mpirun, which was told to end and kills the ranks a second "
      "later: {}{}",
      left.empty() ? "before the first step of this start, nothing is lost" : left,
      lost ? "; start it with longhaul launch, which saves first" : "");
}

}  // namespace

MpirunEnd::MpirunEnd(std::function<void(const std::string& line)> say)
    : say_(std::move(say)),
      others_(children_of(::getppid())),
      thread_([this] { watch(); }) {}

MpirunEnd::~MpirunEnd() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

bool MpirunEnd::one_is_gone() const {
  const int parent = ::getppid();
  return std::ranges::any_of(others_, [&](int pid) { return parent_of(pid) != parent; });
}

std::string MpirunEnd::reason() const { return rank_died_ ? mpirun_ends_job() : ""; }

void MpirunEnd::watch() {
  system::leave_signals_to_main_thread();
  std::optional<system::Stopwatch> since;
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (!since && !mpirun_ends_job().empty()) since.emplace();
    if (since && !rank_died_ && since->seconds() < kDeathSeconds) {
      rank_died_ = one_is_gone();
    }
    if (since && !rank_died_ && since->seconds() >= kSaveSeconds) {
      if (say_) say_(told_to_end());
      ::_exit(kExitTemporary);
    }
    ends_.wait_for(lock, kBetweenLooks);
  }
}

}  // namespace longhaul::apps
