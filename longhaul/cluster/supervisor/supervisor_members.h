#pragma once

// The state of a supervisor, which only its own sources include. supervisor.cpp has its
// main loop and its decisions, judge_nodes.cpp finds the nodes at fault, and
// watch_attempt.cpp watches one start of the workers.

#include <csignal>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/clock.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/fleet/job_step.h"
#include "longhaul/cluster/health/findings.h"
#include "longhaul/cluster/process/background_child.h"
#include "longhaul/cluster/record/down_time.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/record/status_file.h"
#include "longhaul/cluster/supervisor/supervisor.h"
#include "longhaul/cluster/verdict/stragglers.h"
#include "longhaul/cluster/watch/pause_watch.h"
#include "longhaul/run/events.h"
#include "longhaul/system/log.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {

/// A turn of the loop that takes longer is a pause, and silence in it says nothing.
inline constexpr double kSupervisorPauseSeconds = 2.0;

inline constexpr int kExitInterrupted = 128 + SIGINT;

/// How an attempt ended: by a fault, or, without `fault`, with this exit code.
struct AttemptEnd {
  int exit_code = 0;
  std::optional<Fault> fault;
};

/// Thrown when this node alone does not see the run's directory any more, or cannot write
/// there: the supervisor of another node is to go on.
struct CutFromRun : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown when this supervisor began on a node on which, unlike on all others, another
/// directory stands in place of the run's. No agent knows of its lease.
struct RunElsewhere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Supervisor {
  Supervisor(SupervisorOptions options_, Launcher launcher_, Fleet& fleet_,
             system::OwnerLock lease)
      : options(std::move(options_)),
        launcher(std::move(launcher_)),
        fleet(fleet_),
        lock(std::move(lease)),
        policy(options.rules),
        exclusions(options.run_dir),
        hang(options.hang),
        storage({options.run_dir, options.checkpoint_dir}, options.storage,
                options.ask_storage),
        down_time(options.run_dir, unix_time()),
        stragglers(options.straggler_ratio) {}

  int run();
  AttemptEnd attempt(int64_t restart);
  std::string start_name(int64_t restart) const;
  AttemptEnd watch(JobStep& step);
  void take_reports();
  void wake_up();
  std::optional<Fault> look_for_fault(const std::optional<LauncherEnd>& end);
  std::optional<Fault> look_for_hang();
  std::optional<Fault> judge_storage(StorageState state);
  void wait_for_last_words(JobStep& step, FaultKind kind);
  void tell_kept_state();
  bool launcher_hangs() const;
  void end_launcher(JobStep& step);
  std::optional<LauncherEnd> end_workers(JobStep& step, bool at_once);
  void pass_signals();
  bool decide(AttemptEnd& end);
  void pause(double seconds);
  void tell_restart(std::optional<Json> done);
  void tell_stragglers();
  std::vector<SickNode> check_health(const std::vector<std::string>& nodes,
                                     Retest retest = Retest::Usual);
  void blame_sick_node(Fault& fault);
  bool blame_lacking_node(Fault& fault);
  std::vector<HealthReport> take_health(const std::vector<std::string>& nodes,
                                        std::vector<std::string>& shared);
  Findings compare_paths();
  void tell_findings(const Findings& found);
  void look_at_lost_lock();
  void settle_lock();
  void tell_suspension();
  void exclude(const std::string& node, ExclusionKind kind, const std::string& cause);
  bool goes_on(int64_t restart);
  std::string run_to_find() const;
  void look_at_note();
  Attempt plan_start(int64_t restart);
  std::vector<std::string> start_words(int64_t restart);
  void event(const char* kind, Json fields) { events(kind, {std::move(fields)}); }
  template <typename Event>
  void event(const Event& event) {
    this->event(Event::kKind, run::event_fields(event));
  }
  void events(const char* kind, std::vector<Json> all);
  void set_state(const char* name);
  void show_status(bool now);
  void check_lock() const;
  int run_attempts();
  void put_back_status();
  bool replace_lost_node(AttemptEnd& end);

  SupervisorOptions options;
  Launcher launcher;
  Fleet& fleet;
  system::OwnerLock lock;
  std::function<void()> at_work = lock.heart();  ///< called at each turn: keeps the lease
  RestartPolicy policy;
  Exclusions exclusions;
  HangWatch hang;
  StorageWatch storage;
  bool storage_told = false;
  DownTime down_time;
  ClockWatch clock;
  Stragglers stragglers;
  system::Logger log = system::Logger::to_terminal();
  PauseWatch pauses{kSupervisorPauseSeconds};
  /// The newest pause of this process, until it is known whether all nodes stood still.
  struct Pause {
    double seconds = 0.0;
    double until = 0.0;         ///< seconds since 1970
    double stood_before = 0.0;  ///< Fleet::stood_seconds() before it
  };
  std::optional<Pause> newest_pause;
  double stood = 0.0;  ///< Fleet::stood_seconds() at the last turn of the loop
  mutable std::optional<system::Stopwatch> lock_gone;  ///< since the lock's file is gone
  system::SignalWatch signals;
  NodeReports reports;
  RankList ranks;                    ///< the ranks of `reports`
  std::set<std::string> used_nodes;  ///< nodes on which ranks of this start were seen
  run::RunStatus status;
  std::string status_before;  ///< what status.json held before; empty: nothing
  bool worked = false;        ///< workers of this life were seen at work
  double status_shown = 0.0;
  double status_took = 0.0;  ///< seconds that the last writing of status.json took
  int passed_signal = 0;     ///< the signal that was handed to the workers
  double passed_at = 0.0;
  bool request_came_first = false;  ///< a request to stop came before a restart
  double repeated_at = 0.0;
  double fault_at = 0.0;
  double started_at = 0.0;  ///< start of the newest attempt
  /// RunPast::loads when this supervisor began, or when it could first be read.
  std::optional<int64_t> loads_before;
  std::optional<BackgroundChild> writes_note;  ///< writes `noting` into Slurm's record
  std::string noting;                          ///< the run that is written there, or was
  double note_again_at = 0.0;                  ///< when a note that failed is tried again
  system::Stopwatch life;
};

}  // namespace longhaul::cluster
