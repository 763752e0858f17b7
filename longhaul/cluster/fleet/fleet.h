#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/cluster/health/health.h"
#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// The nodes on which workers run, as a supervisor sees and reaches them. One thread.
class Fleet {
 public:
  virtual ~Fleet() = default;

  /// Until a worker ends, a node says something, or the seconds are over.
  virtual void wait(double seconds) = 0;
  /// The newest report of each node that is there.
  virtual NodeReports reports() = 0;
  /// Nodes that were there and do not answer any more, since the last forget().
  virtual std::vector<std::string> lost_nodes() = 0;
  /// Seconds since the node that is longest silent was heard, of those not given up.
  virtual double longest_silence() const { return 0.0; }
  /// Sends a signal to the workers of these ranks, or to all.
  virtual void signal(int number, const std::vector<int>& ranks) = 0;
  /// Before a start: kills the workers that are left of an earlier one, forgets them and
  /// their records.
  virtual void forget() = 0;
  /// Stack traces of these ranks, by rank, as far as they can be had in a few seconds.
  virtual std::map<int, std::string> stacks(const std::vector<int>& ranks) = 0;
  /// Checks these nodes, or all, at the same time; those that do not answer within the
  /// seconds are missing. Workers must not run there.
  virtual std::vector<HealthReport> check_health(const std::vector<std::string>& nodes,
                                                 const HealthOptions& options,
                                                 double seconds) = 0;
  /// Things to tell a person, since the last call.
  virtual std::vector<std::string> take_notes() = 0;
};

/// What an agent needs to know of them, as it travels.
Json to_json(const HealthOptions& options);
/// InputError for what is no such thing.
HealthOptions health_options(const Json& json);

/// Directories of one job on a node, in its memory (/dev/shm): what workers leave for
/// those that watch them and for those that follow them.
struct NodeDirectories {
  fs::path root;
  fs::path records() const { return root / "records"; }
  fs::path memory() const { return root / "memory"; }
};
/// For a run and a job (empty: none) of this user. Nothing is made.
NodeDirectories node_directories(const fs::path& run_dir, const std::string& job);
/// Makes them, for this user alone. InputError where another user's stand there.
void make_directories(const NodeDirectories& directories);

}  // namespace longhaul::cluster
