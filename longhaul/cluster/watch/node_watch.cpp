#include "longhaul/cluster/watch/node_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/process/stacks.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

constexpr double kNodeStackSeconds = 3.0;
/// A killed process ends within this time, unless the kernel holds it (a dead disk).
constexpr double kEndSeconds = 5.0;
/// Seconds between two measurements of the node. Workers are looked at more often.
constexpr double kMeasureSeconds = 1.0;

Descriptor open_process(int64_t pid) {
  return Descriptor(
      static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

/// Returns the letter of the process's state; 0 if there is no such process.
char state_letter(int64_t pid) {
  const auto fields = stat_fields(fmt::format("/proc/{}", pid));
  return fields.empty() ? '\0' : fields.front().front();
}

/// Returns whether the process began before this moment (machine_seconds). If not, it is
/// another process that was given the same number.
bool began_before(int64_t pid, double moment) {
  const auto fields = stat_fields(fmt::format("/proc/{}", pid));
  if (fields.size() <= kStatStart) return false;
  const double started =
      std::atof(fields[kStatStart].c_str()) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return started < moment + 1.0;  // the kernel counts in hundredths
}

bool has_ended(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

}  // namespace

NodeWatch::NodeWatch(std::string node, fs::path records, const std::string& nvml_library)
    : node_(std::move(node)), records_(std::move(records)), devices_(nvml_library) {
  used_.node = node_;
}

bool NodeWatch::wait(double seconds) {
  std::vector<pollfd> ends;
  for (const auto& [rank, worker] : workers_) {
    if (worker.gone_at == 0.0) ends.push_back({worker.fd.get(), POLLIN, 0});
  }
  return ::poll(ends.data(), ends.size(), static_cast<int>(seconds * 1000.0)) > 0;
}

void NodeWatch::look_for(const run::RankState& state, double now) {
  Worker& worker = workers_[state.rank];
  if (worker.pid != state.pid) {
    worker = {state.pid, open_process(state.pid), 0.0, MemoryLimit(state.pid)};
    if (!worker.fd.is_open() || !began_before(state.pid, state.created))
      worker.gone_at = now;
  } else if (worker.gone_at == 0.0 && has_ended(worker.fd.get())) {
    worker.gone_at = now;
  }
}

NodeReport NodeWatch::report() {
  if (machine_seconds() - measured_at_ >= kMeasureSeconds) measure();
  NodeReport report = used_;
  for (const fs::path& path : paths_in(records_)) {
    if (path.extension() != ".record") continue;
    try {
      const run::RankState state = run::read_rank_record(path);
      const double now = machine_seconds();
      look_for(state, now);
      const Worker& worker = workers_[state.rank];
      ObservedRank rank = observe(state, node_, now);
      if (worker.gone_at > 0.0) {
        // The process may have written its last words after its record was read.
        if (rank.exit_code < 0) rank = observe(run::read_rank_record(path), node_, now);
        rank.process = ProcessState::Gone;
        if (rank.killed()) {
          rank.memory_kills = worker.memory.kills();
          rank.memory_limit = worker.memory.bytes().value_or(0);
        }
        rank.gone_age = now - worker.gone_at;
      } else if (const char letter = state_letter(state.pid);
                 letter == 'T' || letter == 't') {
        rank.process = ProcessState::Stopped;
      }
      report.ranks.push_back(std::move(rank));
    } catch (const Error& problem) {
      if (told_.insert(path).second) notes_.emplace_back(problem.what());
    }
  }
  std::ranges::sort(report.ranks, {}, &ObservedRank::rank);
  return report;
}

void NodeWatch::signal(int number, const std::vector<int>& ranks, int cause) {
  siginfo_t info{};
  info.si_signo = number;
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_int = cause;
  for (const auto& [rank, worker] : workers_) {
    if (worker.gone_at > 0.0) continue;
    if (!ranks.empty() && std::ranges::count(ranks, rank) == 0) continue;
    ::syscall(SYS_pidfd_send_signal, worker.fd.get(), number,
              cause != 0 ? &info : nullptr, 0);
  }
}

std::map<int, std::string> NodeWatch::stacks(const std::vector<int>& ranks) const {
  std::map<int, std::string> found;
  for (const int rank : ranks) {
    const auto worker = workers_.find(rank);
    if (worker == workers_.end() || worker->second.gone_at > 0.0) continue;
    found[rank] = stack_traces(static_cast<pid_t>(worker->second.pid), kNodeStackSeconds);
  }
  return found;
}

/// Kills the workers that a dead supervisor has left. They would hold devices, and train
/// on until the run's lock is taken from them.
void NodeWatch::end_left_workers() {
  size_t left = 0;  // workers that have not said their end; the other workers are ending
  const auto count_alive = [&] {
    size_t alive = 0;
    left = 0;
    for (const ObservedRank& rank : report().ranks) {
      if (rank.process == ProcessState::Gone) continue;
      ++alive;
      if (rank.exit_code < 0) ++left;
    }
    return alive;
  };
  const system::Stopwatch watch;
  size_t alive = count_alive();
  const size_t left_at_first = left;
  while (alive > 0 && watch.seconds() < kEndSeconds) {
    signal(SIGKILL);
    wait(0.05);
    alive = count_alive();
  }
  if (left_at_first == 0) return;
  notes_.push_back(fmt::format("{} workers of an earlier start were left and are {}",
                               left_at_first,
                               alive == 0 ? "ended" : "killed, but have not ended yet"));
}

void NodeWatch::forget() {
  end_left_workers();
  workers_.clear();
  for (const fs::path& path : paths_in(records_)) {
    if (path.extension() == ".record") try_remove(path);
  }
}

void NodeWatch::measure() {
  measured_at_ = machine_seconds();
  used_.devices = devices_.look();
  used_.memory_total_bytes = number_behind("/proc/meminfo", "MemTotal:").value_or(0);
  used_.memory_used_bytes = used_.memory_total_bytes -
                            number_behind("/proc/meminfo", "MemAvailable:").value_or(0);
  std::ifstream cpu("/proc/stat");
  std::string key;
  cpu >> key;
  double all = 0.0;
  double idle = 0.0;
  double value = 0.0;
  for (int field = 0; field < 8 && cpu >> value; ++field) {
    all += value;
    if (field == 3 || field == 4) idle += value;  // the fields idle and iowait
  }
  const double busy = all - idle;
  if (all > all_before_ && all_before_ > 0.0) {
    used_.cpu_busy = (busy - busy_before_) / (all - all_before_);
  }
  busy_before_ = busy;
  all_before_ = all;
}

}  // namespace longhaul::cluster
