#include "longhaul/drill/live.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/config/load.h"
#include "longhaul/drill/recovery.h"
#include "longhaul/drill/strike.h"
#include "longhaul/monitor/run_view.h"
#include "longhaul/monitor/terminal_writer.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_status.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::drill {
namespace {

constexpr double kLiveLookSeconds = 0.05;
/// Seconds from the supervisor's verdict about a fault to the next new step. They allow
/// for a start, for reading a checkpoint, and for a requeue.
constexpr double kRestartSeconds = 600.0;

fs::path run_directory(const fs::path& named) {
  return fs::is_regular_file(named) ? load_run_config(named).config.run.dir : named;
}

/// The run and the rank into which the fault is injected.
struct Target {
  run::RunStatus status;
  run::RunStatus::Rank rank;
  monitor::RunView view;
  double hang_seconds = 0.0;
};

Target find_target(monitor::RunFiles& run, const LiveDrillOptions& options) {
  run.refresh();
  Target target;
  target.view = monitor::make_view(run, system_time());
  if (!run.status()) {
    fail_input("drill",
               "{} has no {}: a run without a supervisor does not come back by itself; "
               "start it with longhaul launch or longhaul submit",
               run.dir().string(), run::kStatusFile);
  }
  target.status = *run.status();
  const std::string& state = target.view.state;
  if (!target.view.alive || target.view.ended) {
    fail_input("drill", "the run is {}; a drill needs one that trains", state);
  }
  if (state != run::RunStatus::kTraining && state != run::RunStatus::kSaving) {
    fail_temporary("drill", "the run is {}; try again when it trains", state);
  }
  const auto& ranks = target.status.ranks;
  const auto found = std::ranges::find(ranks, options.rank, &run::RunStatus::Rank::rank);
  if (found == ranks.end()) {
    fail_input("drill", "there is no rank {}: the run has {}", options.rank,
               ranks.size());
  }
  target.rank = *found;
  if (target.status.max_restarts > 0 &&
      target.status.restarts >= target.status.max_restarts) {
    fail_input("drill",
               "the run has used its {} restarts; the fault would end it. Start it with "
               "a higher resilience.max_restarts",
               target.status.max_restarts);
  }
  const bool of_node =
      options.fault == DrillFault::KillNode || options.fault == DrillFault::MarkUnhealthy;
  if (of_node && target.status.job.empty()) {
    fail_input(
        "drill",
        "{} needs other nodes and a batch script that starts the supervisor again; this "
        "run has one machine and longhaul launch. Use kill-worker or stop-worker",
        drill_fault_name(options.fault));
  }
  if (run.config()) target.hang_seconds = run.config()->resilience.hang_timeout_s;
  return target;
}

std::string what_is_done(const Target& target, DrillFault fault) {
  const std::string who = fmt::format("rank {} on {} (process {})", target.rank.rank,
                                      target.rank.node, target.rank.process);
  switch (fault) {
    case DrillFault::StopWorker:
      return who + " gets SIGSTOP, as if it hung";
    case DrillFault::KillNode:
      return fmt::format(
          "every process of the run on {}, agent and supervisor among them, gets SIGKILL",
          target.rank.node);
    case DrillFault::MarkUnhealthy:
      return fmt::format("{} is put into {}; then {} gets SIGKILL", target.rank.node,
                         run::kExcludedNodesFile, who);
    default:
      return who + " gets SIGKILL, as if it crashed";
  }
}

std::string what_to_expect(const Target& target, DrillFault fault) {
  std::string seen = "the supervisor names it within a second";
  if (fault == DrillFault::StopWorker) {
    seen = fmt::format(
        "the supervisor names it when nothing has moved for {:.0f} s "
        "(resilience.hang_timeout_s) or longer",
        target.hang_seconds);
  }
  if (fault == DrillFault::KillNode) {
    seen =
        "the supervisor names a killed rank; where it ran there itself, the batch "
        "script starts another one";
  }
  std::string where = "all ranks are started again";
  if (fault == DrillFault::MarkUnhealthy) {
    where += fmt::format(" without {}; with too few nodes the job goes back to the queue",
                         target.rank.node);
  }
  const std::string from =
      target.view.checkpoint
          ? fmt::format("from the checkpoint of step {} or a newer copy in memory",
                        target.view.checkpoint->step)
          : std::string("from the begin: there is no checkpoint yet");
  return fmt::format(
      "{}, ends the other ranks, and {}, {}; steps since then are done again", seen,
      where, from);
}

/// Returns whether a person at the terminal types yes. Throws ConfigError without a
/// terminal.
bool is_agreed() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    fail_config("drill",
                "a fault in a run that trains needs a yes, and there is no terminal to "
                "ask at; give --yes");
  }
  fmt::print("Type yes to do it: ");
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "yes";
}

/// Prints events as they come. Ends when the run has come back or cannot come back, or
/// when the time is over.
Recovery follow(monitor::RunFiles& run, const BeforeFault& before, double wait_seconds,
                bool tell) {
  size_t told = before.events;
  Recovery recovery;
  const system::Stopwatch watch;
  while (watch.seconds() < wait_seconds) {
    try {
      run.refresh();
    } catch (const Error&) {
      // A file is just being replaced, or the file system fails for a moment.
    }
    for (; told < run.events().size(); ++told) {
      const monitor::Event& event = run.events()[told];
      if (!tell || !monitor::is_shown(event)) continue;
      fmt::print("{:+7.1f} s  {:<17} {}\n", event.time - before.time, event.kind,
                 monitor::describe(event));
      std::fflush(stdout);
    }
    recovery = recovery_since(run, before);
    const bool ended = run.status() && (run.status()->state == run::RunStatus::kFailed ||
                                        run.status()->state == run::RunStatus::kDone);
    if (recovery.came_back || ended) break;
    monitor::sleep_seconds(kLiveLookSeconds);
  }
  return recovery;
}

void print_result(const Target& target, const LiveDrillOptions& options,
                  const BeforeFault& before, const Recovery& recovery) {
  if (options.json) {
    const Json json = {{"fault", drill_fault_name(options.fault)},
                       {"rank", target.rank.rank},
                       {"node", target.rank.node},
                       {"came_back", recovery.came_back},
                       {"at_step", before.step},
                       {"steps_redone", recovery.steps_redone},
                       {"seconds_to_new_step", recovery.seconds_to_new_step},
                       {"cause", recovery.cause}};
    fmt::print("{}\n", json_text(json, 1));
    return;
  }
  fmt::print("the supervisor said  {}\n",
             recovery.cause.empty() ? "nothing yet" : recovery.cause);
  if (!recovery.came_back) {
    fmt::print("the run did not come back in this time; see longhaul watch {}\n",
               target.view.name);
    if (options.fault == DrillFault::StopWorker) {
      fmt::print("process {} on {} may still be stopped: kill -CONT {}\n",
                 target.rank.process, target.rank.node, target.rank.process);
    }
    return;
  }
  fmt::print(
      "to a new step        {:.1f} s\nsteps done again     {} (the fault came at "
      "step {})\n",
      recovery.seconds_to_new_step, recovery.steps_redone, before.step);
}

void print_administration(const Target& target) {
  fmt::print(
      "for the administrator: scontrol update NodeName={} State=DRAIN "
      "Reason=\"longhaul drill of job {}\"\n"
      "to use the node again: take its entry out of {}/{}\n",
      target.rank.node, target.status.job, target.view.name, run::kExcludedNodesFile);
}

}  // namespace

int drill_live_run(const LiveDrillOptions& options) {
  const fs::path dir = run_directory(options.run);
  monitor::RunFiles run(dir);
  Target target = find_target(run, options);
  if (!options.json) {
    fmt::print("{}  {}  step {}{}\ndone:    {}\nexpect:  {}\n", target.view.name,
               target.view.state, target.view.step,
               target.status.job.empty() ? "" : "  job " + target.status.job,
               what_is_done(target, options.fault),
               what_to_expect(target, options.fault));
  }
  if (!options.yes) {
    if (!is_agreed()) {
      fmt::print("nothing was done\n");
      return 1;
    }
    // The run may have been started again before the person answered.
    target = find_target(run, options);
  }
  const BeforeFault before = before_fault(run);
  strike(fs::absolute(dir).lexically_normal(), target.status, options.fault,
         options.rank);
  if (options.fault == DrillFault::MarkUnhealthy && !options.json) {
    print_administration(target);
  }
  const double hang = options.fault == DrillFault::StopWorker ? target.hang_seconds : 0.0;
  const Recovery recovery = follow(
      run, before, options.wait_seconds.value_or(kRestartSeconds + hang), !options.json);
  print_result(target, options, before, recovery);
  return recovery.came_back ? 0 : 1;
}

}  // namespace longhaul::drill
