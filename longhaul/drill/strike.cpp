#include "longhaul/drill/strike.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/slurm/job.h"
#include "longhaul/cluster/watch/node_watch.h"
#include "longhaul/run/files.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/system/owner_lock.h"
#include "longhaul/system/terminal.h"

namespace longhaul::drill {
namespace {

constexpr double kStepSeconds = 60.0;

std::vector<std::string> words_of(int64_t process) {
  return command_words(fmt::format("/proc/{}", process));
}

/// Sends a signal to the process of this number if `is_it` holds. The process is held
/// before `is_it` looks at it, so that its number cannot pass to another process in
/// between.
bool signal_if(int64_t process, int number, const std::function<bool()>& is_it) {
  const Descriptor held(
      static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0)));
  return held.is_open() && is_it() &&
         ::syscall(SYS_pidfd_send_signal, held.get(), number, nullptr, 0) == 0;
}

bool is_rank(int64_t process, int64_t rank) {
  const std::vector<std::string> words = words_of(process);
  return !words.empty() && words[0].starts_with(fmt::format("longhaul rank {} ", rank));
}

/// Returns the directories of this user on this node in which the rank's record names the
/// process. All directories are searched, because a run may be known by several paths.
std::optional<cluster::NodeDirectories> directories_of(int64_t rank, int64_t process) {
  const std::string own = fmt::format("longhaul-{}-", ::geteuid());
  for (const fs::path& dir : paths_in("/dev/shm")) {
    if (!dir.filename().string().starts_with(own)) continue;
    const cluster::NodeDirectories found{dir};
    try {
      const fs::path path =
          run::rank_record_path(found.records(), static_cast<int>(rank));
      if (is_seen(path) && run::read_rank_record(path).pid == process) return found;
    } catch (const Error&) {
      continue;  // such as the record of another version
    }
  }
  return std::nullopt;
}

/// Returns whether the process is an agent of the run with these directories.
bool is_agent(int64_t process, const cluster::NodeDirectories& directories) {
  const std::vector<std::string> words = words_of(process);
  const auto after = [&](const char* option) -> std::string {
    const auto found = std::ranges::find(words, option);
    return found == words.end() || found + 1 == words.end() ? "" : *(found + 1);
  };
  return words.size() > 2 && words[1] == "agent" && !after("--run-dir").empty() &&
         cluster::node_directories(after("--run-dir"), after("--job")).root ==
             directories.root;
}

/// Kills the run's supervisor if it is a process of this machine.
void kill_supervisor_here(const fs::path& run_dir) {
  system::OwnerLockOptions options;
  options.probe = false;
  const auto lock = system::OwnerLock::look(run_dir / run::kSupervisorLockFile, options);
  if (!lock || !lock->alive || lock->holder.host != host_name()) return;
  const int64_t process = lock->holder.process;
  signal_if(process, SIGKILL, [&] {
    const auto words = words_of(process);
    return words.size() > 1 && (words[1] == "supervise" || words[1] == "launch");
  });
}

void kill_node_here(const fs::path& run_dir, const cluster::NodeDirectories& directories,
                    cluster::NodeWatch& watch) {
  for (const fs::path& path : paths_in("/proc")) {
    const std::string name = path.filename().string();
    const auto process = whole_number<int64_t>(name);
    if (!process || !is_agent(*process, directories)) continue;
    signal_if(*process, SIGKILL, [&] { return is_agent(*process, directories); });
  }
  watch.signal(SIGKILL);
  kill_supervisor_here(run_dir);
}

/// Returns the command line of a job step that carries out `order` on `node`.
std::vector<std::string> step_words(const fs::path& run_dir, const std::string& node,
                                    const StrikeHere& order) {
  return {"srun",
          "--jobid=" + order.job,
          "--overlap",
          "--nodes=1",
          "--ntasks=1",
          "--nodelist=" + node,
          "--job-name=longhaul-drill",
          "--quiet",
          this_program(),
          "drill",
          run_dir.string(),
          "--fault",
          drill_fault_name(order.fault),
          "--rank",
          std::to_string(order.rank),
          "--on-node",
          "--process",
          std::to_string(order.process),
          "--job",
          order.job};
}

void strike_on_node(const fs::path& run_dir, const std::string& node,
                    const StrikeHere& order) {
  if (order.job.empty()) {
    if (node != host_name()) {
      fail_input(
          "drill",
          "rank {} is on {}, and this node is {}; start the drill on the rank's node",
          order.rank, node, host_name());
    }
    return strike_here(run_dir, order);
  }
  const auto here = cluster::slurm_job();
  if (here && here->id == order.job && here->here == node) {
    return strike_here(run_dir, order);
  }
  cluster::check_job_id(order.job);
  cluster::CommandOptions options;
  options.deadline_seconds = kStepSeconds;
  const auto words = step_words(run_dir, node, order);
  const cluster::CommandResult result = cluster::run_command(words, options);
  if (!result.ok()) {
    fail_temporary("drill", "'{}' ended with {}: {}{}", system::describe_command(words),
                   result.exit_code, result.errors.substr(0, 400),
                   result.timed_out ? " (no answer in time)" : "");
  }
}

/// Adds the node to the file of excluded nodes, which supervisors read before each start.
void mark(const fs::path& run_dir, const std::string& node) {
  const fs::path path = run_dir / run::kExcludedNodesFile;
  std::vector<cluster::ExcludedNode> nodes = cluster::read_excluded(path);
  std::erase_if(nodes, [&](const auto& one) { return one.node == node; });
  nodes.push_back({node, unix_time(), "marked by longhaul drill"});
  cluster::write_excluded(path, nodes);
}

}  // namespace

void strike_here(const fs::path& run_dir, const StrikeHere& order) {
  const auto gone = [&] {
    return TemporaryError(
        "drill", fmt::format("rank {} is not process {} of {} any more; nothing was "
                             "sent, try again",
                             order.rank, order.process, host_name()));
  };
  const auto directories = directories_of(order.rank, order.process);
  if (!directories || !is_rank(order.process, order.rank)) throw gone();
  cluster::NodeWatch watch(host_name(), directories->records(), "");
  const auto lives = [&](const cluster::ObservedRank& rank) {
    return rank.rank == order.rank && rank.pid == order.process &&
           rank.process != cluster::ProcessState::Gone;
  };
  if (std::ranges::none_of(watch.report().ranks, lives)) throw gone();
  if (order.fault == DrillFault::KillNode) {
    return kill_node_here(run_dir, *directories, watch);
  }
  const bool stop = order.fault == DrillFault::StopWorker;
  watch.signal(stop ? SIGSTOP : SIGKILL, {static_cast<int>(order.rank)});
}

void strike(const fs::path& run_dir, const run::RunStatus& status, DrillFault fault,
            int64_t rank) {
  const auto victim = std::ranges::find(status.ranks, rank, &run::RunStatus::Rank::rank);
  if (victim == status.ranks.end()) {
    fail_input("drill", "there is no rank {}: the run has {}", rank, status.ranks.size());
  }
  if (fault == DrillFault::KillWorkers) {
    bool struck = false;
    for (const run::RunStatus::Rank& one : status.ranks) {
      try {
        strike_on_node(run_dir, one.node,
                       {DrillFault::KillWorker, one.rank, one.process, status.job});
        struck = true;
      } catch (const TemporaryError&) {
        // An earlier worker was struck already, so the supervisor may have ended this
        // one.
        if (!struck) throw;
      }
    }
    return;
  }
  StrikeHere order{fault, rank, victim->process, status.job};
  if (fault == DrillFault::MarkUnhealthy) {
    mark(run_dir, victim->node);
    order.fault = DrillFault::KillWorker;
  }
  strike_on_node(run_dir, victim->node, order);
}

}  // namespace longhaul::drill
