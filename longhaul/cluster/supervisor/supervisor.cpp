#include "longhaul/cluster/supervisor/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json/jsonl.h"
#include "longhaul/base/text.h"
#include "longhaul/cluster/record/requeue_count.h"
#include "longhaul/cluster/record/restart_record.h"
#include "longhaul/cluster/supervisor/supervisor_members.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/run_past.h"
#include "longhaul/run/run_status.h"

namespace longhaul::cluster {
namespace {

constexpr double kStatusSeconds = 1.0;
/// Share of this supervisor's time that may go into status.json. With tens of thousands
/// of ranks the file is written less often.
constexpr double kStatusShare = 0.05;
/// Where Open MPI 4 and 5 put the memory that ranks of a machine share.
constexpr const char* kSegmentVariables[] = {"OMPI_MCA_btl_vader_backing_directory",
                                             "OMPI_MCA_btl_sm_backing_directory"};
/// A number larger than resilience.max_restarts can be.
constexpr int64_t kMostRestarts = 10'000'000;

/// Returns how many starts of the run have loaded their state; nothing if the run's
/// record cannot be read.
std::optional<int64_t> loads_of(const fs::path& run_dir) {
  try {
    const auto record = run::RunPast::read(run_dir);
    return record ? record->loads : 0;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The largest status.json that is put back.
constexpr uint64_t kLargestStatus = uint64_t{64} << 20;

/// Returns what a file holds; nothing if it is absent or cannot be read.
std::string text_of(const fs::path& path) {
  try {
    return fs::exists(path) ? read_text(path, kLargestStatus) : std::string();
  } catch (const std::exception&) {
    return {};
  }
}

/// Thrown when another supervisor has the lock.
struct Superseded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown when no node sees the run's directory any more.
struct RunGone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A lock whose file is absent for this many seconds is lost. A mount may be away for
/// less.
constexpr double kLockGoneSeconds = 3.0;
constexpr double kLockLookSeconds = 0.1;

}  // namespace

int supervise(SupervisorOptions options, Launcher launcher, Fleet& fleet,
              system::OwnerLock lease) {
  Supervisor s(std::move(options), std::move(launcher), fleet, std::move(lease));
  s.log = system::Logger::to_file(s.options.run_dir / run::kLogFile);
  s.policy = RestartPolicy(s.options.rules,
                           read_restarts(s.options.run_dir, s.options.job, s.log));
  s.status.job = s.options.job;
  s.status.max_restarts = s.options.rules.max_restarts;
  s.signals.count_interrupts();
  s.loads_before = loads_of(s.options.run_dir);
  s.status_before = text_of(s.options.run_dir / run::kStatusFile);
  return s.run();
}

/// Appends events to the file. Opens it anew each time, which completes half a line that
/// a killed worker may have left.
void Supervisor::events(const char* kind, std::vector<Json> all) {
  check_lock();
  try {
    JsonLines file(options.run_dir / run::kEventsFile,
                   [&](const std::string& line) { log.to_terminal_only(line); });
    for (Json& fields : all) file.append(run::event_line(kind, std::move(fields)));
  } catch (const std::exception& problem) {
    // A full or lost disk does not end the supervisor.
    log.to_terminal_only(
        fmt::format("{}: {}", run::kEventsFile, to_error(problem).what()));
  }
}

void Supervisor::set_state(const char* name) {
  if (status.state == name) return;
  status.state = name;
  status.since = unix_time();
  show_status(true);
}

void Supervisor::show_status(bool now) {
  const double time = unix_time();
  const double pause = std::max(kStatusSeconds, status_took / kStatusShare);
  if (!now && time - status_shown < pause) return;
  status_shown = time;
  if (const auto jump = clock.look()) {
    log.warning(describe_jump(*jump));
    event(run::kClockJumpEvent, {{"seconds", *jump}, {"host", host_name()}});
  }
  check_lock();
  if (!loads_before) loads_before = loads_of(options.run_dir);
  look_at_note();
  const system::Stopwatch watch;
  status.restarts = policy.restarts();
  cluster::take_reports(status, reports, exclusions.nodes());
  try {
    write_status(options.run_dir / run::kStatusFile, status);
  } catch (const std::exception& problem) {
    // A full or lost disk does not end the supervisor.
    log.to_terminal_only(
        fmt::format("{}: {}", run::kStatusFile, to_error(problem).what()));
  }
  status_took = watch.seconds();
}

/// Throws Superseded if another supervisor has the run: a machine that was cut off for
/// longer than its lease must touch nothing when it comes back.
void Supervisor::check_lock() const {
  try {
    if (lock.is_gone()) {
      if (!lock_gone) lock_gone.emplace();
      return;
    }
    lock_gone.reset();
    lock.check();
  } catch (const TemporaryError&) {
    // The lock cannot be read now. It is read again in a second.
  } catch (const Error& lost) {
    throw Superseded(lost.what());
  }
}

int Supervisor::run() {
  try {
    return run_attempts();
  } catch (const Superseded& lost) {
    log.to_terminal_only(lost.what());
    return kExitSuperseded;
  } catch (const CutFromRun& lost) {
    log.to_terminal_only(lost.what());
    fleet.signal(SIGKILL, {});
    // The agents see that nobody renews the lease any more, and one of them takes it.
    fleet.abandon();
    return kExitSuperseded;
  } catch (const RunElsewhere& lost) {
    log.to_terminal_only(lost.what());
    fleet.signal(SIGKILL, {});
    // The next supervisor on this node must not take this lock for the lock of the run.
    lock.release();
    try_remove(options.run_dir / run::kSupervisorLockFile);
    return kExitNotHere;
  } catch (const RunGone& lost) {
    log.to_terminal_only(lost.what());
    fleet.signal(SIGKILL, {});
    return kExitSettings;
  }
}

/// Decides what a lock means that is not there any more, once that has lasted: other
/// nodes may see it, or the run's directory was removed or renamed for all.
void Supervisor::look_at_lost_lock() {
  if (!lock_gone || lock_gone->seconds() < kLockGoneSeconds) return;
  compare_paths();
  if (is_seen(options.run_dir / run::kRunPastFile)) {
    throw RunGone(fmt::format(
        "longhaul: error: [supervisor] {} was removed while the run trained, though the "
        "run's directory is there: another supervisor could begin beside this one, so "
        "this one ends and writes nothing more. Leave that file alone, and start the run "
        "again: it goes on from its newest checkpoint",
        (options.run_dir / run::kSupervisorLockFile).string()));
  }
  throw RunGone(
      fmt::format("longhaul: error: [supervisor] {} is not there any more: the run's "
                  "directory was removed or renamed while the run trained; nothing more "
                  "is written. Move it back, or set run.dir to its new place, and start "
                  "the run again",
                  (options.run_dir / run::kSupervisorLockFile).string()));
}

/// Treats the loss of the earlier supervisor's node as a fault like any other. Returns
/// whether the run goes on.
bool Supervisor::replace_lost_node(AttemptEnd& end) {
  if (options.lost_node.empty()) return true;
  fault_at = unix_time();
  // Nothing is known of the ranks. The step of the fault tells whether the job has come
  // further since its last fault.
  Fault fault{.kind = FaultKind::Node,
              .node = options.lost_node,
              .step = newest_checkpoint(options.checkpoint_dir).value_or(0),
              .text = fmt::format("{}, the supervisor's node, does not answer any more",
                                  options.lost_node)};
  const auto answers = [&](const auto& report) {
    return report->node == options.lost_node;
  };
  if (std::ranges::any_of(fleet.reports(), answers)) {
    fault.kind = FaultKind::Killed;
    fault.temporary = true;  // only the supervisor failed; its ranks may be well
    fault.text = fmt::format(
        "the supervisor on {} did not answer any more and was replaced; its node answers",
        options.lost_node);
    fault.node.clear();
  }
  end = {1, std::move(fault)};
  return decide(end);
}

int Supervisor::run_attempts() {
  down_time.begin();
  set_state(run::RunStatus::kStarting);
  event(run::SupervisorStartEvent{.job = options.job,
                                  .requeues = job_requeues(),
                                  .host = host_name(),
                                  .ranks = options.ranks,
                                  .max_restarts = options.rules.max_restarts});
  AttemptEnd end;
  bool saved_by_signal = passed_signal != 0;
  try {
    check_health({});
    bool go_on = replace_lost_node(end);
    for (int64_t restart = 0; go_on; ++restart) {
      if (restart == 0 && signals.raised() != 0) {
        log.info("{} came before the start, so nothing was started",
                 system::signal_name(signals.raised()));
        request_came_first = true;
        break;
      }
      end = attempt(restart);
      // Slurm may send the signal to the ranks alone.
      saved_by_signal = end.exit_code == kExitTemporary && !end.fault;
      go_on = end.fault && decide(end);
    }
  } catch (const Error& problem) {
    if (problem.kind() != ErrorKind::Temporary) throw;
    // No start is possible now in this job, mostly because too few nodes are left.
    log.warning(problem.what());
    note_requeue_reason(options.run_dir, options.job,
                        problem.area() == "nodes"  ? RequeueReason::Nodes
                        : problem.area() == "file" ? RequeueReason::Storage
                                                   : RequeueReason::Unknown);
    event(run::RequeueEvent{problem.what()});
    status.cause = problem.what();
    end = {problem.exit_code(), std::nullopt};
  }
  // The request to stop came before the restart that a fault called for. So the run goes
  // on when the job starts again, perhaps after a requeue.
  if (request_came_first) end.exit_code = kExitTemporary;
  if ((saved_by_signal || request_came_first) && end.exit_code == kExitTemporary) {
    note_requeue_reason(options.run_dir, options.job, RequeueReason::Signal);
  }
  tell_kept_state();
  tell_restart(down_time.give_up(unix_time()));
  const bool done = end.exit_code == 0 && !end.fault;
  set_state(done        ? run::RunStatus::kDone
            : end.fault ? run::RunStatus::kFailed
                        : run::RunStatus::kStopped);
  event(run::kSupervisorEndEvent,
        {{"job", options.job}, {"restarts", policy.restarts()}, {"exit", end.exit_code}});
  show_status(true);
  const bool refused = done || (end.fault && end.fault->kind == FaultKind::Settings);
  if (refused && !worked && loads_before.value_or(0) > 0 && !down_time.has_begun()) {
    put_back_status();
  }
  lock.release();
  if (end.exit_code == kExitInterrupted)
    log.warning(describe_left_behind(options.checkpoint_dir, furthest_step(ranks)));
  return end.exit_code;
}

/// Gives status.json its old text again, if the run is as it was: no start began.
void Supervisor::put_back_status() {
  const fs::path path = options.run_dir / run::kStatusFile;
  try {
    if (status_before.empty()) {
      fs::remove(path);
    } else {
      write_text_atomic(path, status_before);
    }
  } catch (const std::exception& problem) {
    log.to_terminal_only(
        fmt::format("{}: {}", run::kStatusFile, to_error(problem).what()));
  }
}

/// Names the state in this machine's memory that stays for a next start.
void Supervisor::tell_kept_state() {
  const uint64_t bytes = run::state_bytes(options.directories.memory());
  if (bytes == 0) return;
  log.info(
      "peer memory: {} stay in {} for the next start of this run; without one, the first "
      "start of another run after {:.0f} hours removes them",
      human_bytes(bytes), options.directories.memory().string(),
      run::kStateKeptSeconds / 3600.0);
}

/// Names a start of this run so that a later start may take the run over at once. The
/// number of the supervisor's lock orders the names over jobs and machines.
std::string Supervisor::start_name(int64_t restart) const {
  return fmt::format("supervised {}", lock.attempt() * kMostRestarts + restart);
}

/// Returns whether a start goes on from the newest checkpoint, whatever checkpoint.resume
/// says. The setting holds until a start has loaded its state, and after that only while
/// no checkpoint was committed. If the record cannot be read, the ranks will judge.
bool Supervisor::goes_on(int64_t restart) {
  // If the record could not be read so far, the first successful reading counts.
  if (!loads_before) loads_before = loads_of(options.run_dir);
  if (restart == 0 && !options.resume_first) return false;
  try {
    if (const auto record = run::RunPast::read(options.run_dir)) {
      if (!options.resume_first && record->loads == loads_before) return false;
      if (record->newest_in(options.checkpoint_dir)) return true;
    }
  } catch (const Error& problem) {
    log.warning(problem.what());
  }
  return newest_checkpoint(options.checkpoint_dir).has_value();
}

Attempt Supervisor::plan_start(int64_t restart) {
  Attempt plan;
  plan.restart = restart;
  plan.resume = goes_on(restart);
  exclusions.read_again(log);
  for (const ExcludedNode& node : exclusions.nodes()) plan.excluded.push_back(node.node);
  return plan;
}

/// Returns the launcher's command line. If nodes are missing, nodes that are left out are
/// tested first. If one requeue has brought no other nodes, another requeue would not
/// either. Then any node that passes a test is used, so that the job need not wait for
/// better ones.
std::vector<std::string> Supervisor::start_words(int64_t restart) {
  Attempt plan = plan_start(restart);
  for (const Retest retest : {Retest::Usual, Retest::LastResort}) {
    const std::vector<std::string> testable = exclusions.testable(unix_time(), retest);
    if (testable.empty() || !launcher.lacks_nodes) continue;
    if (retest == Retest::LastResort &&
        requeues_in_vain(options.run_dir, options.job,
                         newest_checkpoint(options.checkpoint_dir).value_or(0)) == 0) {
      continue;
    }
    if (!launcher.lacks_nodes(plan)) break;
    check_health(testable, retest);
    plan = plan_start(restart);
  }
  return launcher.command(plan);
}

AttemptEnd Supervisor::attempt(int64_t restart) {
  fleet.forget();
  ranks.clear();
  used_nodes.clear();
  reports.clear();
  hang.restart();
  storage.restart();
  storage_told = false;
  stragglers.restart();
  set_state(restart == 0 ? run::RunStatus::kStarting : run::RunStatus::kRestarting);
  const std::vector<std::string> command = start_words(restart);
  settle_lock();
  std::map<std::string, std::string> environment = {
      {"LONGHAUL_RECORD_DIR", options.directories.records().string()},
      {"LONGHAUL_MEMORY_DIR", options.directories.memory().string()},
      {"LONGHAUL_SUPERVISOR", start_name(restart)},
      {kClockVariable, clock_words()},
      {"LONGHAUL_RESTART", std::to_string(restart)}};
  // Open MPI leaves the memory segments of killed ranks behind. These variables choose a
  // directory from which the next start, or the end, removes the segments.
  for (const char* name : kSegmentVariables) {
    if (std::getenv(name) != nullptr) continue;
    environment[name] = options.directories.segments().string();
  }
  if (const std::string run = run_to_find(); !run.empty())
    environment[run::kRunToFindVariable] = run;
  JobStep step = JobStep::start(command, environment);
  started_at = unix_time();
  return watch(step);
}

/// Waits until the supervisor's absent lock file is back, or counts as lost: ranks that
/// start before would begin the run anew in a directory that they make.
void Supervisor::settle_lock() {
  check_lock();
  while (lock_gone) {
    look_at_lost_lock();
    fleet.wait(kLockLookSeconds);
    check_lock();
  }
}

bool Supervisor::decide(AttemptEnd& end) {
  Fault fault = *end.fault;
  settle_lock();
  const bool all_checked = blame_lacking_node(fault);
  if (!options.rules.node_faults) blame_sick_node(fault);
  status.cause = fault.text;
  tell_restart(down_time.fault(fault_at));
  const Decision decision = policy.decide(fault);
  check_lock();
  write_restarts(options.run_dir, options.job, policy.counts(), log);
  event(run::FaultEvent{.kind = fault_name(fault.kind),
                        .rank = fault.rank,
                        .node = fault.node,
                        .step = fault.step,
                        .cause = fault.text});
  if (decision.exclude_node) {
    exclude(
        fault.node,
        fault.kind == FaultKind::Node ? ExclusionKind::Silence : ExclusionKind::Faults,
        fault.text);
  }
  if (!decision.restart) {
    log.warning("stopped: {}; {}", fault.text, decision.reason);
    if (decision.used_up) end.exit_code = kExitSettings;
    return false;
  }
  if (passed_signal != 0) {
    log.warning(fault.text + "; not restarted: the run was asked to stop");
    request_came_first = true;
    return false;
  }
  log.info("restart {} after step {}: {}{}", policy.restarts(), fault.step, fault.text,
           decision.exclude_node && options.other_nodes
               ? fmt::format("; {} excluded", fault.node)
               : "");
  set_state(run::RunStatus::kRestarting);
  // The process may have died because of its machine.
  if (!decision.exclude_node && !all_checked) {
    check_health(fault.node.empty() ? std::vector<std::string>{}
                                    : std::vector<std::string>{fault.node});
  }
  pause(decision.delay_seconds);
  down_time.restarts(
      {{"restart", policy.restarts()},
       {"cause", fault.text},
       {"kind", fault_name(fault.kind)},
       {"ranks", fault.rank < 0 ? Json::array() : Json::array({fault.rank})},
       {"nodes", fault.node.empty() ? Json::array() : Json::array({fault.node})},
       {"excluded", decision.exclude_node}});
  request_came_first = signals.raised() != 0;
  return !request_came_first;
}

void Supervisor::exclude(const std::string& node, ExclusionKind kind,
                         const std::string& cause) {
  if (!options.other_nodes) return;
  check_lock();
  if (!exclusions.add(node, kind, cause, unix_time(), log)) return;
  log.warning("{} is left out: {}", node, cause);
  if (options.job.empty()) return;
  log.info(
      "for the administrator: scontrol update NodeName={} State=DRAIN "
      "Reason=\"longhaul job {}\"",
      node, options.job);
}

void Supervisor::pause(double seconds) {
  const system::Stopwatch watch;
  while (watch.seconds() < seconds && signals.raised() == 0) {
    fleet.wait(std::min(0.2, seconds));
    show_status(false);
  }
}

}  // namespace longhaul::cluster
