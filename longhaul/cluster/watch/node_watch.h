#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/cluster/health/health.h"
#include "longhaul/cluster/watch/device_watch.h"
#include "longhaul/cluster/watch/memory_limit.h"
#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// Watches the workers of one node by their records and processes. All calls come from
/// one thread.
class NodeWatch {
 public:
  /// `records` is the directory of LONGHAUL_RECORD_DIR on this node, which may not exist
  /// yet. `nvml_library` is the driver's library; if it is empty, the devices are not
  /// watched.
  NodeWatch(std::string node, fs::path records,
            const std::string& nvml_library = kNvmlLibrary);

  /// Waits until a worker ends or the seconds are over. Returns whether a worker has
  /// ended.
  bool wait(double seconds);
  /// Returns what all workers of the newest start do, and how much of the node was used
  /// within the last second. Leaves out a record that cannot be read, and says so once in
  /// take_notes().
  NodeReport report();
  /// Sends a signal to the living workers of these ranks, or to all if no rank is named.
  /// A `cause` that is not 0 goes along as the signal's value.
  void signal(int number, const std::vector<int>& ranks = {}, int cause = 0);
  /// Returns stack traces of these ranks' processes, by rank.
  std::map<int, std::string> stacks(const std::vector<int>& ranks) const;
  /// Prepares a new start: kills the workers that an earlier start has left, waits a few
  /// seconds for their ends, and removes all records.
  void forget();
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct Worker {
    int64_t pid = 0;
    Descriptor fd;         ///< pidfd of the process
    double gone_at = 0.0;  ///< when its end was seen; 0 while it lives
    MemoryLimit memory = MemoryLimit(0);
  };
  void look_for(const run::RankState& state, double now);
  void end_left_workers();
  void measure();

  std::string node_;
  fs::path records_;
  std::map<int, Worker> workers_;  ///< by rank
  std::set<std::string> told_;
  std::vector<std::string> notes_;
  DeviceWatch devices_;
  NodeReport used_;  ///< the report without ranks
  double measured_at_ = 0.0;
  double busy_before_ = 0.0;
  double all_before_ = 0.0;
};

}  // namespace longhaul::cluster
