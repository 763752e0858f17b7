#include "longhaul/cluster/slurm/stand_in.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/fleet/job_step.h"
#include "longhaul/cluster/record/requeue_count.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {
namespace {

constexpr double kStandInLookSeconds = 0.1;
constexpr int kMostCrashes = 3;
/// Slurm is asked again whether it has lost the batch script's machine after this many
/// retry_seconds.
constexpr double kDesertedLooks = 6.0;
/// Limit of `supervise --requeue`, which itself waits for a controller that does not
/// answer.
constexpr double kRequeueSeconds = 2000.0;

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void say(const std::string& line) {
  fmt::print(stderr, "longhaul: {} {}\n", utc_now(), system::printable(line));
  std::fflush(stderr);
}

/// Sends both output streams to a file from now on. The streams of a step go to its srun,
/// which is lost.
void write_to(const std::string& log) {
  const Descriptor file(
      ::open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!file.is_open()) return;  // training is worth more than its output
  ::dup2(file.get(), STDOUT_FILENO);
  ::dup2(file.get(), STDERR_FILENO);
}

std::string log_of(const StandInOptions& options, const SlurmClient& slurm) {
  try {
    return slurm.query_log(options.job);
  } catch (const Error&) {
    return options.log;
  }
}

/// Runs one supervisor to its end and returns its exit code.
int supervise(const StandInOptions& options) {
  // If this process dies, the supervisor gets SIGKILL: a supervisor that ends normally
  // dismisses the agents and is not requeued.
  JobStep child = JobStep::start(options.words, {}, {}, SIGKILL);
  int passed = 0;
  while (true) {
    if (const auto end = child.poll()) return end->exit_code;
    if (const int raised = options.raised(); raised != passed) {
      passed = raised;
      child.signal(raised);
    }
    sleep_for(kStandInLookSeconds);
  }
}

/// Requeues by `supervise --requeue`, which knows the nodes that Slurm must not give
/// again. If that fails, requeues all the same. Without a reason the supervisor's note
/// counts.
void requeue(const StandInOptions& options, const SlurmClient& slurm,
             std::optional<RequeueReason> reason) {
  std::vector<std::string> words = options.words;
  words.emplace_back("--requeue");
  if (reason) words.insert(words.end(), {"--because", reason_name(*reason)});
  CommandOptions patience;
  patience.deadline_seconds = kRequeueSeconds;
  const CommandResult result = run_command(words, patience);
  for (const std::string& text : {result.output, result.errors}) {
    // These lines are escaped already.
    if (!text.empty()) fmt::print(stderr, "{}", text);
  }
  if (result.exit_code == kExitStopped) {
    slurm.cancel(options.job);
  } else if (!result.ok()) {
    slurm.requeue(options.job);
  }
}

/// Calls `ask` until Slurm has done what is asked, or until the time is over. Slurm ends
/// this process too once it has done so.
void insist(const StandInOptions& options, const std::function<void()>& ask) {
  const system::Stopwatch watch;
  while (watch.seconds() < options.retry_limit_seconds) {
    try {
      ask();
      return;
    } catch (const TemporaryError& problem) {
      say(problem.what());
    }
    sleep_for(options.retry_seconds);
  }
}

bool is_running(const std::optional<JobStatus>& job) {
  return job && job->state == "RUNNING";
}

/// Calls `ask` until Slurm has done what is asked, but only while the job runs: a requeue
/// would bring a cancelled job back.
void insist_while_it_runs(const StandInOptions& options, const SlurmClient& slurm,
                          const std::function<void()>& ask) {
  insist(options, [&] {
    const auto job = slurm.query_job(options.job);
    if (is_running(job)) ask();
  });
}

/// Returns the machine of a running job's batch script if Slurm has lost it.
std::optional<std::string> lost_host(const JobStatus& job, const SlurmClient& slurm) {
  const auto hosts = slurm.query_nodes({job.batch_host});
  if (!hosts.empty() && hosts.front().usable()) return std::nullopt;
  return job.batch_host;
}

/// Returns whether the run must not go on after its supervisor has ended with this exit
/// code.
bool has_failed(int status) {
  return status == 1 || status == kExitSettings || status == kExitStopped;
}

/// Ends a job that has lost its batch script, after the supervisor has ended.
void end_job(const StandInOptions& options, const SlurmClient& slurm, int status) {
  // The job is cancelled, since a requeued job would train on. Training must not go on
  // after the file STOP either.
  if (has_failed(status)) {
    say(fmt::format("the supervisor ended with {}; the job is cancelled", status));
    insist(options, [&] { slurm.cancel(options.job); });
    return;
  }
  say(status == 0 ? "the run is done; the job, which lost its script, is requeued to "
                    "end as completed"
                  : "requeue: the supervisor asks for it");
  insist(options, [&] {
    requeue(options, slurm,
            status == 0                ? std::optional(RequeueReason::Done)
            : status == kExitTemporary ? std::nullopt
                                       : std::optional(RequeueReason::Crash));
  });
}

}  // namespace

std::vector<std::string> step_variables(const std::vector<std::string>& environment) {
  constexpr std::array<std::string_view, 7> kOfTheJob = {
      "SLURM_JOB",  "SLURM_CLUSTER", "SLURM_CONF",   "SLURM_RESTART_COUNT",
      "SLURM_GPUS", "SLURM_MEM",     "SLURM_STEP_ID"};
  std::vector<std::string> names;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    const bool of_launchers = name.starts_with("SLURM_") || name.starts_with("PMI") ||
                              name.starts_with("OMPI_COMM");
    const bool of_job = std::ranges::any_of(
        kOfTheJob, [&](std::string_view start) { return name.starts_with(start); });
    if (of_launchers && !of_job) names.push_back(name);
  }
  return names;
}

void forget_step_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    environment.emplace_back(*entry);
  for (const std::string& name : step_variables(environment)) ::unsetenv(name.c_str());
}

void requeue_orphan(const StandInOptions& options, const SlurmClient& slurm) {
  write_to(log_of(options, slurm));
  say("no supervisor is left, and none can be started on this node: the job is requeued "
      "if it still runs");
  insist_while_it_runs(options, slurm,
                       [&] { requeue(options, slurm, RequeueReason::Host); });
}

void requeue_deserted(const StandInOptions& options, const SlurmClient& slurm) {
  const system::Stopwatch watch;
  while (watch.seconds() < options.retry_limit_seconds) {
    try {
      const auto job = slurm.query_job(options.job);
      if (!is_running(job)) return;
      if (const auto lost = lost_host(*job, slurm)) {
        write_to(log_of(options, slurm));
        say(
            fmt::format("the supervisor has ended, and {}, which runs the job's script, "
                        "is lost: the job is requeued",
                        *lost));
        return requeue(options, slurm, RequeueReason::Host);
      }
    } catch (const TemporaryError&) {
      // The controller does not answer now. It is asked again.
    }
    sleep_for(kDesertedLooks * options.retry_seconds);
  }
}

void requeue_without_storage(const StandInOptions& options, const SlurmClient& slurm) {
  insist_while_it_runs(options, slurm, [&] { slurm.requeue(options.job); });
}

void end_for_lost_script(const StandInOptions& options, const SlurmClient& slurm,
                         int status) {
  std::optional<std::string> lost;
  insist(options, [&] {
    const auto job = slurm.query_job(options.job);
    if (is_running(job)) lost = lost_host(*job, slurm);
  });
  if (!lost) return;
  write_to(log_of(options, slurm));
  say(fmt::format("{}, which runs the job's script, is lost", *lost));
  end_job(options, slurm, status);
}

int stand_in_for_script(const StandInOptions& options, const SlurmClient& slurm) {
  write_to(log_of(options, slurm));
  forget_step_environment();
  for (int crashes = 0;; sleep_for(crashes)) {
    const int status = supervise(options);
    if (options.raised() == SIGTERM || status == kExitSuperseded) return status;
    if (!has_failed(status) && status != 0 && status != kExitTemporary &&
        ++crashes <= kMostCrashes) {
      say(fmt::format("the supervisor ended with {}; starts again", status));
      continue;
    }
    end_job(options, slurm, status);
    return status;
  }
}

}  // namespace longhaul::cluster
