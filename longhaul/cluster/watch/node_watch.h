#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/cluster/health/health.h"
#include "longhaul/cluster/watch/device_watch.h"
#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// Watches the workers of one node by their records and processes. One thread.
class NodeWatch {
 public:
  /// `records`: the directory of LONGHAUL_RECORD_DIR on this node; may not exist yet.
  /// `nvml_library`: what knows the devices; empty: they are not asked.
  NodeWatch(std::string node, fs::path records,
            const std::string& nvml_library = kNvmlLibrary);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  /// Waits until a worker ends or the seconds are over; true when one has ended.
  bool wait(double seconds);
  /// What all workers of the newest start do, and, as it was within the last second, how
  /// much of the node is used. A record that cannot be read is left out,
  /// and said once in notes().
  NodeReport report();
  /// Sends a signal to all workers that live, or to these ranks'.
  void signal(int number, const std::vector<int>& ranks = {});
  /// Stack traces of these ranks' processes, by rank.
  std::map<int, std::string> stacks(const std::vector<int>& ranks) const;
  /// For a new start: kills the workers that an earlier one has left, waits a few seconds
  /// for their ends, and removes all records.
  void forget();
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct Worker {
    int64_t pid = 0;
    int fd = -1;           ///< pidfd
    double gone_at = 0.0;  ///< 0: lives
  };
  void look_for(const RankState& state, double now);
  void end_left_workers();
  void close_all();
  void measure();

  std::string node_;
  fs::path records_;
  std::map<int, Worker> workers_;  ///< by rank
  std::set<std::string> told_;
  std::vector<std::string> notes_;
  DeviceWatch devices_;
  NodeReport used_;  ///< of the node alone
  double measured_at_ = 0.0;
  double busy_before_ = 0.0;
  double all_before_ = 0.0;
};

}  // namespace longhaul::cluster
