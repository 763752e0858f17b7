#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/cluster/health/health.h"
#include "longhaul/cluster/health/node_paths.h"
#include "longhaul/cluster/watch/observed.h"
#include "longhaul/run/node_memory.h"

namespace longhaul::cluster {

/// The nodes on which workers run, as a supervisor sees and reaches them. Calls come from
/// one thread at a time.
class Fleet {
 public:
  virtual ~Fleet() = default;

  /// Waits until a worker ends, a node says something, or the seconds are over.
  virtual void wait(double seconds) = 0;
  /// Returns the newest report of each node that is there.
  virtual NodeReports reports() = 0;
  /// Returns, once each, nodes that were there and do not answer any more.
  virtual std::vector<std::string> lost_nodes() = 0;
  /// Returns the longest silence, in seconds, of the nodes that have not been given up.
  virtual double longest_silence() const { return 0.0; }
  /// Sends a signal to the workers of these ranks, or to all workers if no rank is named.
  virtual void signal(int number, const std::vector<int>& ranks) = 0;
  /// Asks all workers by SIGUSR1 to save and end. `cause` is the signal by which this
  /// process was asked: it is the one that the workers name.
  virtual void ask_to_end(int cause) = 0;
  /// Prepares a start: kills the workers that are left of an earlier start, and forgets
  /// them and their records.
  virtual void forget() = 0;
  /// Returns stack traces of these ranks, by rank, as far as they come within a few
  /// seconds.
  virtual std::map<int, std::string> stacks(const std::vector<int>& ranks) = 0;
  /// Checks these nodes at the same time, or all nodes if no node is named. The result
  /// lacks nodes that do not answer within the seconds. No workers may run there.
  virtual std::vector<HealthReport> check_health(const std::vector<std::string>& nodes,
                                                 const HealthOptions& options,
                                                 double seconds) = 0;
  /// Returns how the nodes see these paths. The result lacks nodes that do not answer,
  /// and is empty if there is no other node to compare with. Workers may run during the
  /// call.
  virtual std::vector<NodePaths> view_paths(const std::vector<NeededPath>&) { return {}; }
  /// Returns the shortest time, in seconds, for which a node has stood still since its
  /// agent began, SIGSTOP included; 0 if no node tells.
  virtual double stood_seconds() const { return 0.0; }
  /// Leaves the nodes' agents to another supervisor when this object is destroyed.
  virtual void abandon() {}
  /// Returns the lines for people since the last call.
  virtual std::vector<std::string> take_notes() = 0;
};

/// Directories of one job on a node, in the node's memory (/dev/shm). Workers leave their
/// records there, copies of their state for the workers of the next start, and Open MPI's
/// segments of shared memory.
struct NodeDirectories {
  fs::path root;
  fs::path records() const { return root / "records"; }
  fs::path memory() const { return root / "memory"; }
  fs::path segments() const { return root / "segments"; }
};
/// Returns the names of the directories for a run and a job (empty: none) of this user,
/// without making them.
NodeDirectories node_directories(const fs::path& run_dir, const std::string& job);

/// The directories of a job on this node, while a supervisor or an agent uses them.
class HeldDirectories {
 public:
  /// Makes the directories, for this user alone, and removes what earlier jobs of this
  /// user have left for too long. Throws InputError if another user's directories stand
  /// there.
  explicit HeldDirectories(NodeDirectories directories);

  /// Removes the segments that killed workers have left.
  void remove_segments() const noexcept;
  /// Removes, at the end of the run, everything but a rank's state for a next start
  /// (run/node_memory.h). Does nothing if another agent or a living worker uses the
  /// directories.
  void clean_up() const noexcept;

 private:
  NodeDirectories directories_;
  run::DirectoryHold hold_;
};

}  // namespace longhaul::cluster
