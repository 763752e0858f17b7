#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/cluster/record/restart_policy.h"
#include "longhaul/cluster/supervisor/supervisor_lease.h"
#include "longhaul/cluster/verdict/hang_watch.h"
#include "longhaul/cluster/watch/storage_watch.h"

namespace longhaul::cluster {

/// One start of the workers, as a Launcher needs to know it.
struct Attempt {
  int64_t restart = 0;  ///< 0 for the first start of this supervisor
  bool resume = false;  ///< go on from the newest checkpoint, whatever the settings say
  std::vector<std::string> excluded;  ///< nodes that are not to be used
};

/// How a supervisor starts workers: by mpirun here, by srun in a Slurm job.
struct Launcher {
  /// Returns the launcher's command line. Throws TemporaryError if no start is possible
  /// now (too few nodes).
  std::function<std::vector<std::string>(const Attempt& attempt)> command;
  /// Returns whether a start now would have fewer nodes than wanted. Empty stands for
  /// false.
  std::function<bool(const Attempt& attempt)> lacks_nodes;
  /// Ends the workers that a killed launcher may have left; may be empty.
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
  HealthOptions health;  ///< for the checks before the first start and after faults
  std::string job;       ///< Slurm's number, or empty
  /// The supervisor's own node; empty if it is not one of the job's nodes.
  std::string here;
  /// What the run needs on every node; the nodes' views of it are compared.
  std::vector<NeededPath> needed;
  /// There are other nodes, so a node at fault can be left out.
  bool other_nodes = false;
  int ranks = 1;
  /// The first start, too, goes on from the newest checkpoint: the job has been started
  /// before.
  bool resume_first = false;
  /// The run that the workers must find, since an earlier start of the job has trained
  /// it; empty: what the run's own record says.
  std::string run;
  /// Writes into Slurm's record that the job trains this run. Called in a child process,
  /// which may wait for Slurm; may be empty.
  std::function<void(const std::string& run)> note_run;
  /// Another node of the job can supervise if the run's directory is missing on this
  /// node, cannot be written, or does not hold the run.
  bool may_move = false;
  /// The node of the supervisor for which this one stands in. That supervisor does not
  /// answer, and the node may be lost with it.
  std::string lost_node;
  /// After this time the run saves and ends, as after SIGUSR1.
  double stop_after_seconds = std::numeric_limits<double>::infinity();
  /// Seconds that workers have to save and end after a signal, before they are killed.
  double signal_patience_seconds = 600.0;
  /// Seconds that a launcher has, after a signal, to bring a first worker that can be
  /// asked to end; then the launcher is ended. Longer than agents take to report.
  double start_patience_seconds = 3.0;
  /// Seconds after which a connection between two nodes that was lost is tried again. A
  /// connection that failed only for a moment is there again by then.
  double second_look_seconds = 5.0;
  /// A rank whose step takes longer than this many times the median is reported.
  double straggler_ratio = 1.3;
};

/// Starts the workers of a run, watches them, and starts them again when they fail, until
/// the run is done, is asked to stop, or cannot be helped. Never calls MPI. Hands the
/// signals of this process (SIGTERM, SIGINT, SIGUSR1, SIGHUP) to the workers, which then
/// save and end.
///
/// Leaves in the run's directory: events (supervisor_start, fault, hang, straggler,
/// restart, node_readmitted, suspended, supervisor_end), status.json every second,
/// excluded_nodes.json. `lease` comes from take_supervision().
///
/// Returns the exit code:
/// - 0: the run is done;
/// - 75: a signal stopped the run, which has saved, or a retry can help;
/// - 76: with may_move, this node alone has not held the run from the beginning;
/// - 77: another supervisor has taken the run over while this machine was cut off, or
///   is to do so since this machine alone does not see the run's directory any more;
/// - 78: a setting is wrong, or the run's directory was removed or renamed;
/// - 79: the file STOP or a rule ended the run, which has saved;
/// - 130: a second SIGINT ended the run, which has not saved;
/// - 1: anything else.
int supervise(SupervisorOptions options, Launcher launcher, Fleet& fleet,
              system::OwnerLock lease);

}  // namespace longhaul::cluster
