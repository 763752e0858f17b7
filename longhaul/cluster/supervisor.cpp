#include "longhaul/cluster/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <stdexcept>
#include <utility>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/jsonl.h"
#include "longhaul/base/log.h"
#include "longhaul/base/process.h"
#include "longhaul/base/signals.h"
#include "longhaul/base/stopwatch.h"
#include "longhaul/cluster/down_time.h"
#include "longhaul/cluster/findings.h"
#include "longhaul/cluster/job_step.h"
#include "longhaul/cluster/pause_watch.h"
#include "longhaul/cluster/run_status.h"
#include "longhaul/cluster/stragglers.h"
#include "longhaul/cluster/supervision.h"
#include "longhaul/cluster/verdict.h"

namespace longhaul::cluster {
namespace {

/// Between looks at ranks that train: reading their records takes time from them. A
/// worker's end wakes the supervisor at once.
constexpr double kLookSeconds = 0.2;
/// While something ends.
constexpr double kShortLookSeconds = 0.05;
constexpr double kStatusSeconds = 1.0;
/// A supervisor that was not at work for so long judges nobody by that time.
constexpr double kSupervisorPauseSeconds = 2.0;
constexpr double kRepeatSeconds = 1.0;
constexpr double kHealthSeconds = 120.0;
/// Agents report twice a second.
constexpr double kSilenceSeconds = 3.0;
/// A rank that fails by itself says so and ends the others within this time.
constexpr double kLastWordsSeconds = 5.0;
/// After a death without a word, others that died of the same cause are seen.
constexpr double kEvidenceSeconds = 0.1;
/// Its workers gone, a launcher ends by itself, then when asked, then when killed.
constexpr double kLauncherAskSeconds = 2.0;
constexpr double kLauncherEndSeconds = 5.0;
constexpr double kLauncherLostSeconds = 0.5;
/// More than resilience.max_restarts can be.
constexpr int64_t kMostRestarts = 10'000'000;

/// Another supervisor has the lock.
struct Superseded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int kExitInterrupted = 128 + SIGINT;

/// How an attempt ended: done, asked to stop, interrupted a second time, or by a fault.
struct AttemptEnd {
  int exit_code = 0;
  std::optional<Fault> fault;
};

}  // namespace

struct Supervisor::State {
  State(SupervisorOptions options_, Launcher launcher_, Fleet& fleet_, OwnerLock lease)
      : options(std::move(options_)),
        launcher(std::move(launcher_)),
        fleet(fleet_),
        lock(std::move(lease)),
        policy(options.rules),
        hang(options.hang),
        down_time(options.run_dir, unix_time()),
        stragglers(options.straggler_ratio) {}

  int run();
  AttemptEnd attempt(int64_t restart);
  std::string start_name(int64_t restart) const;
  AttemptEnd watch(JobStep& step);
  void wake_up();
  std::optional<Fault> look_for_fault(const std::optional<LauncherEnd>& end);
  std::optional<Fault> look_for_hang();
  void wait_for_last_words(JobStep& step, FaultKind kind);
  std::optional<LauncherEnd> end_workers(JobStep& step, bool at_once);
  std::string left_behind() const;
  void pass_signals();
  bool decide(const AttemptEnd& end);
  void pause(double seconds);
  void tell_restart(std::optional<Json> done);
  void tell_stragglers();
  std::vector<SickNode> check_health(const std::vector<std::string>& nodes);
  void blame_sick_node(Fault& fault);
  void exclude(const std::string& node, const std::string& cause);
  void read_excluded_again();
  void event(const char* name, Json fields);
  void set_state(const char* name);
  void show_status(bool now);
  void check_lock() const;
  int run_attempts();
  bool replace_lost_node();

  SupervisorOptions options;
  Launcher launcher;
  Fleet& fleet;
  OwnerLock lock;
  RestartPolicy policy;
  HangWatch hang;
  DownTime down_time;
  ClockWatch clock;
  Stragglers stragglers;
  Logger log = Logger::to_terminal();
  PauseWatch pauses{kSupervisorPauseSeconds};
  SignalWatch signals;
  std::vector<NodeReport> reports;
  std::vector<ObservedRank> ranks;
  std::set<std::string> used_nodes;  ///< on which ranks of this start were seen
  std::vector<ExcludedNode> excluded;
  RunStatus status;
  double status_shown = 0.0;
  int passed_signal = 0;  ///< handed to the workers
  double passed_at = 0.0;
  double repeated_at = 0.0;
  double fault_at = 0.0;
  double started_at = 0.0;  ///< the newest attempt
  Stopwatch life;
};

Supervisor::Supervisor(SupervisorOptions options, Launcher launcher, Fleet& fleet,
                       OwnerLock lease)
    : state_(std::make_unique<State>(std::move(options), std::move(launcher), fleet,
                                     std::move(lease))) {
  State& s = *state_;
  s.log = Logger::to_file(s.options.run_dir / "log.txt");
  s.excluded = read_excluded(s.options.run_dir / "excluded_nodes.json");
  s.status.job = s.options.job;
  s.status.max_restarts = s.options.rules.max_restarts;
  s.signals.count_interrupts();
}

Supervisor::~Supervisor() = default;

int Supervisor::run() { return state_->run(); }

void Supervisor::State::event(const char* name, Json fields) {
  check_lock();
  fields["event"] = name;
  put_time(fields);
  try {
    // Opened each time: a worker that was killed may have left half a line.
    JsonLines(options.run_dir / "events.jsonl", [&](const std::string& line) {
      log.to_terminal_only(line);
    }).append(fields);
  } catch (const std::exception& problem) {
    // As with status.json below: a full or lost disk ends no supervisor.
    log.to_terminal_only(fmt::format("events.jsonl: {}", problem.what()));
  }
}

void Supervisor::State::set_state(const char* name) {
  if (status.state == name) return;
  status.state = name;
  status.since = unix_time();
  show_status(true);
}

void Supervisor::State::show_status(bool now) {
  const double time = unix_time();
  if (!now && time - status_shown < kStatusSeconds) return;
  status_shown = time;
  if (const auto jump = clock.look()) {
    log.warning(describe_jump(*jump));
    event("clock_jump", {{"seconds", *jump}, {"host", host_name()}});
  }
  check_lock();
  status.restarts = policy.restarts();
  take_reports(status, reports, excluded);
  try {
    write_status(options.run_dir / "status.json", status);
  } catch (const std::exception& problem) {
    // A full disk must not end what would go on without it.
    log.to_terminal_only(fmt::format("status.json: {}", problem.what()));
  }
}

/// A machine that was cut off for longer than its lease comes back to a run that is
/// another's: it must touch nothing.
void Supervisor::State::check_lock() const {
  try {
    lock.check();
  } catch (const TemporaryError&) {
    // It cannot be read now: looked at again in a second.
  } catch (const Error& lost) {
    throw Superseded(lost.what());
  }
}

int Supervisor::State::run() {
  try {
    return run_attempts();
  } catch (const Superseded& lost) {
    log.to_terminal_only(lost.what());
    return kExitSuperseded;
  }
}

/// The node of the supervisor before this one counts as a fault like any other.
bool Supervisor::State::replace_lost_node() {
  if (options.lost_node.empty()) return true;
  fault_at = unix_time();
  Fault fault;
  fault.kind = FaultKind::Node;
  fault.node = options.lost_node;
  fault.text =
      fmt::format("{}, with the supervisor, does not answer any more", options.lost_node);
  const auto answers = [&](const NodeReport& report) {
    return report.node == options.lost_node;
  };
  if (std::ranges::any_of(fleet.reports(), answers)) {
    fault.kind = FaultKind::Killed;
    fault.text = fmt::format(
        "the supervisor on {} did not answer any more and was "
        "replaced; the node answers",
        options.lost_node);
    fault.node.clear();
  }
  return decide({1, std::move(fault)});
}

int Supervisor::State::run_attempts() {
  set_state("starting");
  event("supervisor_start", {{"job", options.job},
                             {"requeues", job_requeues()},
                             {"host", host_name()},
                             {"ranks", options.ranks},
                             {"max_restarts", options.rules.max_restarts}});
  AttemptEnd end;
  try {
    check_health({});
    bool go_on = replace_lost_node();
    for (int64_t restart = 0; go_on; ++restart) {
      end = attempt(restart);
      go_on = end.fault && decide(end);
    }
  } catch (const TemporaryError& problem) {
    // No start is possible now, in this job: too few nodes are left.
    log.warning(problem.what());
    event("requeue", {{"reason", problem.what()}});
    status.cause = problem.what();
    end = {problem.exit_code(), std::nullopt};
  }
  tell_restart(down_time.give_up(unix_time()));
  const bool done = end.exit_code == 0 && !end.fault;
  set_state(done ? "done" : end.fault ? "failed" : "stopped");
  event("supervisor_end",
        {{"job", options.job}, {"restarts", policy.restarts()}, {"exit", end.exit_code}});
  show_status(true);
  lock.release();
  if (end.exit_code == kExitInterrupted) log.warning(left_behind());
  return end.exit_code;
}

/// What an end without a save costs.
std::string Supervisor::State::left_behind() const {
  const std::optional<int64_t> newest = newest_checkpoint(options.checkpoint_dir);
  int64_t step = 0;
  for (const ObservedRank& rank : ranks) step = std::max(step, rank.step);
  std::string text = "ended at once by a second SIGINT: ";
  text += newest ? fmt::format("newest checkpoint step {}", *newest)
                 : "there is no checkpoint";
  const int64_t first = newest.value_or(0) + 1;
  if (step > first) {
    text += fmt::format("; steps {} to {} will be trained again", first, step);
  } else if (step == first) {
    text += fmt::format("; step {} will be trained again", step);
  }
  return text;
}

/// Names the starts of this run so that a later one may take the run over at once. The
/// supervisor's own lock orders them, over jobs and machines.
std::string Supervisor::State::start_name(int64_t restart) const {
  return fmt::format("supervised {}", lock.attempt() * kMostRestarts + restart);
}

AttemptEnd Supervisor::State::attempt(int64_t restart) {
  Attempt plan;
  plan.restart = restart;
  plan.resume = (restart > 0 || options.resume_first) &&
                newest_checkpoint(options.checkpoint_dir).has_value();
  read_excluded_again();
  for (const ExcludedNode& node : excluded) plan.excluded.push_back(node.node);
  fleet.forget();
  ranks.clear();
  used_nodes.clear();
  reports.clear();
  hang.restart();
  stragglers.restart();
  set_state(restart == 0 ? "starting" : "restarting");
  const std::vector<std::string> command = launcher.command(plan);
  check_lock();
  JobStep step = JobStep::start(
      command, {{"LONGHAUL_RECORD_DIR", options.directories.records().string()},
                {"LONGHAUL_MEMORY_DIR", options.directories.memory().string()},
                {"LONGHAUL_SUPERVISOR", start_name(restart)},
                {kClockVariable, clock_words()},
                {"LONGHAUL_RESTART", std::to_string(restart)}});
  started_at = unix_time();
  return watch(step);
}

AttemptEnd Supervisor::State::watch(JobStep& step) {
  while (true) {
    fleet.wait(kLookSeconds);
    wake_up();
    const std::optional<LauncherEnd> end = step.poll();
    reports = fleet.reports();
    ranks = ranks_of(reports);
    for (const ObservedRank& rank : ranks) used_nodes.insert(rank.node);
    for (const std::string& note : fleet.take_notes()) log.warning(note);
    pass_signals();
    if (signals.interrupts() > 1) {
      end_workers(step, /*at_once=*/true);
      return {kExitInterrupted, std::nullopt};
    }
    if (auto fault = look_for_fault(end)) {
      fault_at = unix_time();
      const bool of_ranks =
          fault->kind != FaultKind::Node && fault->kind != FaultKind::Hang;
      if (of_ranks && !end) wait_for_last_words(step, fault->kind);
      const std::vector<ObservedRank> seen = ranks;  // before the rest is killed
      const std::optional<LauncherEnd> last =
          end_workers(step, fault->kind == FaultKind::Node);
      if (of_ranks) fault = find_fault(seen, last).value_or(std::move(*fault));
      return {fault->kind == FaultKind::Settings ? kExitSettings : 1, std::move(fault)};
    }
    if (end) return {end->exit_code, std::nullopt};
    const WorkKind work = work_of(ranks);
    if (passed_signal == 0 && work != WorkKind::Start) {
      set_state(work == WorkKind::Save ? "saving" : "training");
    }
    tell_restart(down_time.look());
    tell_stragglers();
    show_status(false);
  }
}

/// Only now is known from which step the workers went on, and what it has cost.
void Supervisor::State::tell_restart(std::optional<Json> done) {
  if (done) event("restart", std::move(*done));
}

/// After a pause of this process another one may be the supervisor, and no silence says
/// anything.
void Supervisor::State::wake_up() {
  const double pause = pauses.turn();
  if (pause == 0.0) return;
  check_lock();
  hang.restart();
  started_at += pause;
  if (passed_signal != 0) passed_at += pause;
}

/// The first failure that is seen need not be the first that happened.
void Supervisor::State::wait_for_last_words(JobStep& step, FaultKind kind) {
  const Stopwatch watch;
  const double patience =
      kind == FaultKind::Killed ? kEvidenceSeconds : kLastWordsSeconds;
  while (!step.poll() && watch.seconds() < patience) fleet.wait(kShortLookSeconds);
  reports = fleet.reports();
  ranks = ranks_of(reports);
}

void Supervisor::State::pass_signals() {
  int raised = signals.raised();
  if (raised == 0 && life.seconds() > options.stop_after_seconds) raised = SIGUSR1;
  if (raised == 0) return;
  const double now = unix_time();
  if (passed_signal == 0) {
    passed_signal = raised;
    passed_at = now;
    log.info(fmt::format("{}: the workers save and end{}", signal_name(raised),
                         raised == SIGINT ? "; once more, and they end unsaved" : ""));
    set_state("draining");
  } else if (now - repeated_at < kRepeatSeconds) {
    return;
  }
  // Again and again: a rank may have begun after the first.
  repeated_at = now;
  fleet.signal(SIGUSR1, {});
}

std::optional<Fault> Supervisor::State::look_for_fault(
    const std::optional<LauncherEnd>& end) {
  for (const std::string& node : fleet.lost_nodes()) {
    if (!used_nodes.empty() && !used_nodes.contains(node)) {
      exclude(node, "the spare does not answer any more");
      continue;
    }
    Fault fault;
    fault.kind = FaultKind::Node;
    fault.node = node;
    for (const ObservedRank& rank : ranks) fault.step = std::max(fault.step, rank.step);
    fault.text = fmt::format("{} does not answer any more", node);
    return fault;
  }
  if (auto fault = find_fault(ranks, end)) return fault;
  if (end) return std::nullopt;
  if (passed_signal != 0 && unix_time() - passed_at > options.signal_patience_seconds) {
    Fault fault;
    fault.kind = FaultKind::Hang;
    fault.text = fmt::format("the workers did not end within {:.0f} s after {}",
                             options.signal_patience_seconds, signal_name(passed_signal));
    return fault;
  }
  return look_for_hang();
}

std::optional<Fault> Supervisor::State::look_for_hang() {
  const auto quiet = hang.look(ranks, unix_time() - started_at, pauses.awake_seconds());
  if (!quiet) return std::nullopt;
  // Ranks wait for a node that is lost, too: it is soon told as that.
  if (fleet.longest_silence() > kSilenceSeconds) return std::nullopt;
  const HangVerdict verdict = judge_hang(ranks);
  Fault fault;
  fault.kind = FaultKind::Hang;
  fault.text = "hang: " + verdict.text;
  for (const ObservedRank& rank : ranks) {
    fault.step = std::max(fault.step, rank.step);
    if (!verdict.ranks.empty() && rank.rank == verdict.ranks.front()) {
      fault.rank = rank.rank;
      fault.node = rank.node;
    }
  }
  const std::map<int, std::string> stacks = fleet.stacks(verdict.ranks);
  std::string file;
  if (!stacks.empty()) {
    file = fmt::format("control/stacks_{:.0f}.txt", unix_time());
    std::string text = fault.text + "\n";
    for (const auto& [rank, stack] : stacks) {
      text += fmt::format("\nrank {}\n{}\n", rank, stack);
    }
    try {
      write_text_durable(options.run_dir / file, text);
    } catch (const Error& problem) {
      log.warning(fmt::format("stack traces are lost: {}", problem.what()));
    }
  }
  event("hang", {{"verdict", verdict.text},
                 {"ranks", verdict.ranks},
                 {"seconds", *quiet},
                 {"work", work_name(work_of(ranks))},
                 {"stacks", file}});
  return fault;
}

std::optional<LauncherEnd> Supervisor::State::end_workers(JobStep& step, bool at_once) {
  // A launcher would wait for a lost node; so does a person for nothing.
  check_lock();
  const double ask = at_once ? 0.0 : kLauncherAskSeconds;
  const double patience = at_once ? kLauncherLostSeconds : kLauncherEndSeconds;
  fleet.signal(SIGKILL, {});
  const Stopwatch watch;
  bool asked = false;
  std::optional<LauncherEnd> end;
  while (!(end = step.poll()) && watch.seconds() < patience) {
    if (!asked && watch.seconds() >= ask) {
      step.signal(SIGTERM);
      asked = true;
    }
    fleet.wait(0.01);
    fleet.signal(SIGKILL, {});
  }
  if (launcher.clean_up) launcher.clean_up();
  return end;
}

/// Somebody else replaces nodes: he has to hear of a process that died of its node.
void Supervisor::State::blame_sick_node(Fault& fault) {
  if (fault.node.empty() || fault.kind == FaultKind::Settings) return;
  for (const SickNode& sick : check_health({fault.node})) {
    fault.kind = FaultKind::Node;
    fault.text += fmt::format("; {} is sick: {}", sick.node, sick.cause);
  }
}

bool Supervisor::State::decide(const AttemptEnd& end) {
  Fault fault = *end.fault;
  if (!options.rules.node_faults) blame_sick_node(fault);
  status.cause = fault.text;
  tell_restart(down_time.fault(fault_at));
  const Decision decision = policy.decide(fault);
  event("fault", {{"kind", fault_name(fault.kind)},
                  {"rank", fault.rank},
                  {"node", fault.node},
                  {"step", fault.step},
                  {"cause", fault.text}});
  if (decision.exclude_node) exclude(fault.node, fault.text);
  if (passed_signal != 0) {
    log.warning(fault.text + "; not restarted: the run was asked to stop");
    return false;
  }
  if (!decision.restart) {
    log.warning(fmt::format("stopped: {}; {}", fault.text, decision.reason));
    return false;
  }
  log.info(fmt::format("restart {} after step {}: {}{}", policy.restarts(), fault.step,
                       fault.text,
                       decision.exclude_node && options.other_nodes
                           ? fmt::format("; {} excluded", fault.node)
                           : ""));
  set_state("restarting");
  // A process that died may have died of its machine.
  if (!decision.exclude_node) {
    check_health(fault.node.empty() ? std::vector<std::string>{}
                                    : std::vector<std::string>{fault.node});
  }
  pause(decision.delay_seconds);
  down_time.restarts({{"restart", policy.restarts()},
                      {"cause", fault.text},
                      {"kind", fault_name(fault.kind)},
                      {"ranks", Json::array({fault.rank})},
                      {"nodes", Json::array({fault.node})},
                      {"excluded", decision.exclude_node}});
  return signals.raised() == 0;
}

/// Those of these nodes, or of all, that are sick: they are left out. What concerns the
/// job is told once and leaves nobody out.
std::vector<SickNode> Supervisor::State::check_health(
    const std::vector<std::string>& nodes) {
  const std::vector<HealthReport> checked =
      fleet.check_health(nodes, options.health, kHealthSeconds);
  for (const HealthReport& report : checked) {
    event("health", {{"node", report.node},
                     {"ok", report.ok()},
                     {"cause", report.cause()},
                     {"checks", report.checks.size()}});
  }
  Findings found = judge_health(checked);
  for (const std::string& finding : found.shared) {
    log.warning("of the job, not of a node: " + finding);
    event("shared_finding", {{"cause", finding}});
  }
  for (const SickNode& sick : found.sick) exclude(sick.node, sick.cause);
  return std::move(found.sick);
}

void Supervisor::State::exclude(const std::string& node, const std::string& cause) {
  if (!options.other_nodes) return;
  check_lock();
  read_excluded_again();
  const auto same = [&](const ExcludedNode& one) { return one.node == node; };
  if (std::ranges::any_of(excluded, same)) return;
  excluded.push_back({node, unix_time(), cause});
  try {
    write_excluded(options.run_dir / "excluded_nodes.json", excluded);
  } catch (const Error& problem) {
    log.warning(problem.what());  // it is left out in this life of the job
  }
  log.warning(fmt::format("{} is left out: {}", node, cause));
  if (options.job.empty()) return;
  log.info(
      fmt::format("for the administrator: scontrol update NodeName={} State=DRAIN "
                  "Reason=\"longhaul job {}\"",
                  node, options.job));
}

/// A person, or a drill, may have put nodes in or taken some out.
void Supervisor::State::read_excluded_again() {
  try {
    excluded = read_excluded(options.run_dir / "excluded_nodes.json");
  } catch (const Error& problem) {
    log.warning(problem.what());  // the nodes that were known stay out
  }
}

void Supervisor::State::pause(double seconds) {
  const Stopwatch watch;
  while (watch.seconds() < seconds && signals.raised() == 0) {
    fleet.wait(std::min(0.2, seconds));
    show_status(false);
  }
}

void Supervisor::State::tell_stragglers() {
  for (const Straggler& slow : stragglers.look(ranks, unix_time())) {
    log.warning(fmt::format("straggler: {}", slow.text));
    event("straggler", {{"rank", slow.rank},
                        {"node", slow.node},
                        {"ratio", slow.ratio},
                        {"seconds", slow.seconds}});
  }
}

}  // namespace longhaul::cluster
