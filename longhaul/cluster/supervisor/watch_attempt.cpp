#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/file.h"
#include "longhaul/cluster/process/stacks.h"
#include "longhaul/cluster/supervisor/supervisor_members.h"
#include "longhaul/cluster/verdict/verdict.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"
#include "longhaul/run/run_status.h"

namespace longhaul::cluster {
namespace {

/// Seconds between two looks at ranks that train. Reading the records of the ranks takes
/// time from the ranks, and a worker's end wakes the supervisor at once.
constexpr double kLookSeconds = 0.2;
/// Seconds between two looks while workers end.
constexpr double kShortLookSeconds = 0.05;
constexpr double kRepeatSeconds = 1.0;
/// Longer than the two seconds within which each agent reports.
constexpr double kSilenceSeconds = 3.0;
/// A rank that fails by itself says so, and ends the other ranks, within this time.
constexpr double kLastWordsSeconds = 5.0;
/// If a rank dies without a message, other deaths of the same cause are seen within this
/// time.
constexpr double kEvidenceSeconds = 0.1;
/// A launcher whose workers are gone ends by itself; a launcher that does not is asked,
/// then killed.
constexpr double kLauncherAskSeconds = 2.0;
constexpr double kLauncherEndSeconds = 5.0;
constexpr double kLauncherLostSeconds = 0.5;
constexpr double kKillAgainSeconds = 0.1;
/// A pause of this process counts as a pause of all nodes if each node stood still for
/// this part of it.
constexpr double kSharedPause = 0.5;
/// Agents tell of a pause of their own within this time.
constexpr double kPauseTellSeconds = 5.0;

/// Seconds until a note in Slurm's record that failed is tried again.
constexpr double kNoteSeconds = 60.0;

}  // namespace

/// Returns the run that the workers must find; empty if none has begun here. A worker on
/// a node with an empty directory must not begin the run anew.
std::string Supervisor::run_to_find() const {
  try {
    const auto record = run::RunPast::read(options.run_dir);
    if (record && record->loads > 0) return record->run;
  } catch (const Error&) {
    // The ranks read the record too, and they report its fault.
  }
  return options.run;
}

/// Has Slurm's record of the job name the run, once the run has begun: when the job
/// starts again, it may not see the run's directory. Tries again until Slurm has taken
/// it.
void Supervisor::look_at_note() {
  if (!options.note_run) return;
  if (const auto good = writes_note ? writes_note->poll() : std::nullopt) {
    writes_note.reset();
    if (!*good) {
      noting.clear();
      if (note_again_at == 0.0) {
        log.warning(
            "Slurm has no note that job {} trains this run, and is asked again "
            "every {:.0f} s: a requeued start that finds the run's directory "
            "empty would begin anew",
            options.job, kNoteSeconds);
      }
      note_again_at = unix_time() + kNoteSeconds;
    }
  }
  if (writes_note || unix_time() < note_again_at) return;
  const std::string run = run_to_find();
  if (run.empty() || run == noting) return;
  noting = run;
  writes_note.emplace([&] { options.note_run(run); });
}

AttemptEnd Supervisor::watch(JobStep& step) {
  while (true) {
    fleet.wait(kLookSeconds);
    at_work();
    wake_up();
    tell_suspension();
    look_at_lost_lock();
    const std::optional<LauncherEnd> end = step.poll();
    take_reports();
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
      // The verdict uses the state before the other ranks are killed. The list points
      // into these reports.
      const NodeReports kept = reports;
      const RankList seen = ranks;
      const std::optional<LauncherEnd> last =
          end_workers(step, fault->kind == FaultKind::Node);
      if (of_ranks) fault = find_fault(seen, last).value_or(std::move(*fault));
      return {fault->kind == FaultKind::Settings ? kExitSettings : 1, std::move(fault)};
    }
    if (end) return {end->exit_code, std::nullopt};
    if (launcher_hangs()) {
      log.warning(
          "no worker has begun, so there is nothing to save: the launcher is ended");
      end_launcher(step);
      return {kExitTemporary, std::nullopt};
    }
    const WorkKind work = work_of(ranks);
    if (passed_signal == 0 && work != WorkKind::Start) {
      worked = true;
      const bool saves = work == WorkKind::Save || work == WorkKind::SaveWait;
      set_state(saves ? run::RunStatus::kSaving : run::RunStatus::kTraining);
    }
    tell_restart(down_time.look());
    tell_stragglers();
    show_status(false);
  }
}

/// Returns whether the run was asked to end and no worker is there that could: the
/// launcher may hang before it starts any.
bool Supervisor::launcher_hangs() const {
  return passed_signal != 0 && ranks.empty() &&
         unix_time() - passed_at > options.start_patience_seconds;
}

/// Ends a launcher that has no workers. A launcher that does not end within
/// kLauncherEndSeconds is killed later, by the destructor of `step`.
void Supervisor::end_launcher(JobStep& step) {
  step.signal(SIGTERM);
  const system::Stopwatch watch;
  while (!step.poll() && watch.seconds() < kLauncherEndSeconds) {
    fleet.wait(kShortLookSeconds);
    // The launcher may start a worker before it ends.
    fleet.signal(SIGKILL, {});
  }
  if (launcher.clean_up) launcher.clean_up();
}

/// Writes the event of a restart, once it is known from which step the workers went on.
void Supervisor::tell_restart(std::optional<Json> done) {
  if (done) event(run::kRestartEvent, std::move(*done));
}

/// After a pause of this process, checks that it is still the supervisor, and does not
/// count the pause as a silence of nodes or ranks.
void Supervisor::wake_up() {
  const double pause = pauses.turn();
  if (pause == 0.0) return;
  check_lock();
  newest_pause = Pause{pause, unix_time(), stood};
  hang.restart();
  started_at += pause;
  if (passed_signal != 0) passed_at += pause;
}

/// Writes the event of a time in which all nodes stood still with this process, as after
/// `scontrol suspend`. If this process alone stood still, the ranks trained on.
void Supervisor::tell_suspension() {
  const double now_stood = fleet.stood_seconds();
  if (!newest_pause) {
    stood = now_stood;
    return;
  }
  const double together = now_stood - newest_pause->stood_before;
  if (together > kSharedPause * newest_pause->seconds) {
    log.info("all nodes stood still for {:.0f} s: the job was suspended",
             newest_pause->seconds);
    event(run::SuspendedEvent{.seconds = newest_pause->seconds,
                              .until = newest_pause->until});
  } else if (unix_time() - newest_pause->until < kPauseTellSeconds) {
    return;
  }
  newest_pause.reset();
  stood = now_stood;
}

/// Waits for further failures: the first one seen need not be the first that happened.
void Supervisor::wait_for_last_words(JobStep& step, FaultKind kind) {
  const system::Stopwatch watch;
  const double patience =
      kind == FaultKind::Killed ? kEvidenceSeconds : kLastWordsSeconds;
  while (!step.poll() && watch.seconds() < patience) fleet.wait(kShortLookSeconds);
  take_reports();
}

void Supervisor::take_reports() {
  reports = fleet.reports();
  ranks = ranks_of(reports);
  for (const auto& report : reports) {
    if (!report->ranks.empty()) used_nodes.insert(report->node);
  }
}

void Supervisor::pass_signals() {
  int raised = signals.raised();
  if (raised == 0 && life.seconds() > options.stop_after_seconds) raised = SIGUSR1;
  if (raised == 0) return;
  const double now = unix_time();
  if (passed_signal == 0) {
    passed_signal = raised;
    passed_at = now;
    log.info("{}: the workers save and end{}", system::signal_name(raised),
             raised == SIGINT ? "; a second SIGINT ends them without a save" : "");
    set_state(run::RunStatus::kDraining);
  } else if (now - repeated_at < kRepeatSeconds) {
    return;
  }
  // The signal is repeated, because a rank may have begun after the first one.
  repeated_at = now;
  fleet.ask_to_end(raised);
}

std::optional<Fault> Supervisor::look_for_fault(const std::optional<LauncherEnd>& end) {
  for (const std::string& node : fleet.lost_nodes()) {
    if (!used_nodes.empty() && !used_nodes.contains(node)) {
      exclude(node, ExclusionKind::Silence, "the spare does not answer any more");
      continue;
    }
    return Fault{.kind = FaultKind::Node,
                 .node = node,
                 .step = furthest_step(ranks),
                 .text = fmt::format("{} does not answer any more", node)};
  }
  if (auto fault = find_fault(ranks, end)) return fault;
  if (end) return std::nullopt;
  if (passed_signal != 0 && unix_time() - passed_at > options.signal_patience_seconds) {
    return Fault{.kind = FaultKind::Hang,
                 .text = fmt::format("the workers did not end within {:.0f} s after {}",
                                     options.signal_patience_seconds,
                                     system::signal_name(passed_signal))};
  }
  return look_for_hang();
}

/// Judges a hang in which the storage does not answer. Ranks that wait for storage go on
/// by themselves when it answers, so no rank is at fault, and new workers would wait as
/// well.
std::optional<Fault> Supervisor::judge_storage(StorageState state) {
  if (state == StorageState::Asked) return std::nullopt;
  if (state == StorageState::Back) {
    storage_told = false;
    hang.restart();
    log.info("the storage answers again: the ranks have time to go on");
    event(run::kStorageAnswersEvent, Json::object());
    return std::nullopt;
  }
  const std::string names = storage.names();
  const double patience = options.storage.wait_seconds;
  if (state == StorageState::GivenUp) {
    return Fault{.kind = FaultKind::Hang,
                 .step = furthest_step(ranks),
                 .temporary = true,
                 .text = fmt::format("the storage of {} has not answered for {:.0f} s",
                                     names, storage.asked_seconds())};
  }
  if (!std::exchange(storage_told, true)) {
    log.warning(
        "hang: the storage of {} does not answer; no rank is at "
        "fault, the run waits for it, at most {:.0f} s",
        names, patience);
    event(run::kStorageSilentEvent, {{"directories", names}, {"wait_seconds", patience}});
  }
  return std::nullopt;
}

std::optional<Fault> Supervisor::look_for_hang() {
  const auto quiet = hang.look(ranks, unix_time() - started_at,
                               std::min(pauses.awake_seconds(), storage.back_seconds()));
  // Ranks also wait for a node that is lost, which is soon reported as lost.
  const bool hangs = quiet && fleet.longest_silence() <= kSilenceSeconds;
  const StorageState state = storage.look(hangs);
  if (state == StorageState::Back) return judge_storage(state);
  if (!hangs) return std::nullopt;
  if (state != StorageState::Answers) return judge_storage(state);
  const HangVerdict verdict = judge_hang(ranks);
  Fault fault{.kind = FaultKind::Hang,
              .step = furthest_step(ranks),
              .text = "hang: " + verdict.text};
  for (const ObservedRank* rank : ranks) {
    if (!verdict.ranks.empty() && rank->rank == verdict.ranks.front()) {
      fault.rank = rank->rank;
      fault.node = rank->node;
    }
  }
  const std::map<int, std::string> stacks = fleet.stacks(verdict.ranks);
  std::string file;
  if (!stacks.empty()) {
    file = run::stacks_file(unix_time());
    try {
      write_text_durable(options.run_dir / file,
                         fault.text + "\n" + describe_stacks(stacks));
    } catch (const Error& problem) {
      log.warning("the stack traces could not be written: {}", problem.what());
    }
  }
  event(run::kHangEvent, {{"verdict", verdict.text},
                          {"ranks", verdict.ranks},
                          {"seconds", *quiet},
                          {"work", work_name(work_of(ranks))},
                          {"stacks", file}});
  return fault;
}

std::optional<LauncherEnd> Supervisor::end_workers(JobStep& step, bool at_once) {
  // If a node is lost, the launcher would wait for it in vain, so it is ended sooner.
  check_lock();
  const double ask = at_once ? 0.0 : kLauncherAskSeconds;
  const double patience = at_once ? kLauncherLostSeconds : kLauncherEndSeconds;
  fleet.signal(SIGKILL, {});
  const system::Stopwatch watch;
  bool asked = false;
  double killed = 0.0;
  std::optional<LauncherEnd> end;
  while (!(end = step.poll()) && watch.seconds() < patience) {
    if (!asked && watch.seconds() >= ask) {
      step.signal(SIGTERM);
      asked = true;
    }
    fleet.wait(0.01);
    // A rank may have begun since the last SIGKILL. The signal is not repeated in every
    // turn, because thousands of agents get a message each time.
    if (watch.seconds() - killed < kKillAgainSeconds) continue;
    killed = watch.seconds();
    fleet.signal(SIGKILL, {});
  }
  if (launcher.clean_up) launcher.clean_up();
  return end;
}

void Supervisor::tell_stragglers() {
  for (const Straggler& slow : stragglers.look(ranks, unix_time())) {
    log.warning("straggler: {}", slow.text);
    event(run::kStragglerEvent, {{"rank", slow.rank},
                                 {"node", slow.node},
                                 {"ratio", slow.ratio},
                                 {"seconds", slow.seconds}});
  }
}

}  // namespace longhaul::cluster
