#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/cluster/record/restart_policy.h"
#include "longhaul/cluster/supervisor/supervisor_lease.h"
#include "longhaul/cluster/verdict/hang_watch.h"
#include "longhaul/cluster/watch/storage_watch.h"

namespace longhaul::cluster {

/// What a start of the workers needs to know.
struct Attempt {
  int64_t restart = 0;  ///< 0: the first of this supervisor
  bool resume = false;  ///< go on from the newest checkpoint, whatever the settings say
  std::vector<std::string> excluded;  ///< nodes that are not to be used
};

/// How workers are started; by mpirun here, by srun in a job.
struct Launcher {
  /// The launcher's words, program first. TemporaryError where no start is possible now
  /// (too few nodes).
  std::function<std::vector<std::string>(const Attempt& attempt)> command;
  /// Would a start now have fewer nodes than are wanted? May be empty: no.
  std::function<bool(const Attempt& attempt)> lacks_nodes;
  /// Ends what a launcher that was killed may have left; may be empty.
  std::function<void()> clean_up;
};

struct SupervisorOptions {
  fs::path run_dir;
  fs::path checkpoint_dir;
  NodeDirectories directories;
  RestartRules rules;
  HangLimits hang;
  StorageLimits storage;
  StorageWatch::Ask ask_storage = cluster::ask_storage;
  HealthOptions health;      ///< of the checks before the first start and after faults
  std::string job;           ///< Slurm's number, or empty
  bool other_nodes = false;  ///< a node at fault can be left out
  int ranks = 1;
  /// The first start goes on from the newest checkpoint too: an earlier life of the job.
  bool resume_first = false;
  /// The node of an earlier supervisor of this job, which does not answer and may be lost
  /// with it: this one stands in for it.
  std::string lost_node;
  /// After that many seconds the run saves and ends, as after SIGUSR1.
  double stop_after_seconds = std::numeric_limits<double>::infinity();
  /// Seconds that workers have to save and end after a signal, before they are killed.
  double signal_patience_seconds = 600.0;
  /// Ranks slower than this share of the median's step time are told.
  double straggler_ratio = 1.3;
};

/// Starts the workers of a run, watches them, and starts them again when they fail, until
/// the run is done, is asked to stop, or cannot be helped. Never calls MPI. Signals of
/// this process (SIGTERM, SIGINT, SIGUSR1) are handed to the workers, who save and end.
///
/// Leaves in the run's directory: events (supervisor_start, fault, hang, straggler,
/// restart, node_readmitted, supervisor_end), status.json every second,
/// excluded_nodes.json.
class Supervisor {
 public:
  /// `lease`: of take_supervision().
  Supervisor(SupervisorOptions options, Launcher launcher, Fleet& fleet, OwnerLock lease);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// The exit code: 0 done, 75 stopped by a signal and saved, or a retry can help; 78
  /// settings; 79 the file STOP or a rule has ended it, saved; 130 a second SIGINT,
  /// unsaved; 77 another supervisor has taken the run over while this machine was cut
  /// off; 1 else.
  int run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
