#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/run/run_status.h"

namespace longhaul::cluster {

/// What the kernel says of a worker's process.
enum class ProcessState {
  Running,
  Stopped,  ///< by SIGSTOP or a debugger
  Gone,
};
const char* process_state_name(ProcessState state);

/// One rank as its node sees it. Times are ages in seconds, so that nodes need no common
/// clock.
struct ObservedRank {
  int rank = 0;
  int world = 0;
  int64_t pid = 0;
  std::string node;
  std::string coordinates;  ///< "pp 1 dp 0 cp 0 tp 1"
  int64_t step = 0;
  std::string phase;
  ProcessState process = ProcessState::Running;
  int exit_code = -1;  ///< -1: it did not end by itself
  std::string failure;
  bool waits = false;
  std::string waits_group;
  int64_t waits_number = 0;
  std::string waits_verb;
  std::string waits_for;  ///< for people: "all_reduce number 8812 (4096 bytes) on 'tp'"
  double waits_age = 0.0;
  double phase_age = 0.0;
  double progress_age = 0.0;  ///< since it did anything but wait
  double gone_age = 0.0;      ///< since its process was seen to be gone
  int64_t steps_done = 0;     ///< by this process
  double step_age = 0.0;      ///< since its last step ended; 0 before the first
  double wall_seconds = 0.0;  ///< of a step, median of the last
  double busy_seconds = 0.0;  ///< of that, without waiting
  /// By phase, how long its longest took, of those that have ended.
  std::map<std::string, double> longest_phases;
  /// By group, the number of the newest collective that it has entered.
  std::map<std::string, int64_t> entered;

  /// "rank 17 on n2 (pp 1 dp 0 cp 0 tp 3)"
  std::string name() const;
  bool operator==(const ObservedRank&) const = default;
  /// Gone without having ended by itself.
  bool killed() const { return process == ProcessState::Gone && exit_code < 0; }
  bool failed() const { return !failure.empty() || exit_code > 0 || killed(); }

  /// A row, without names and without the node, which the report has: a supervisor of
  /// thousands reads thousands of them a second. Times to the millisecond.
  Json to_json() const;
  /// InputError for what another program of this version would not send.
  static ObservedRank from_json(const Json& json, const std::string& node);
};

ObservedRank observe(const RankState& state, const std::string& node, double now);

/// What a node says of itself.
struct NodeReport {
  std::string node;
  std::vector<ObservedRank> ranks;
  int64_t memory_used_bytes = 0;
  int64_t memory_total_bytes = 0;
  double cpu_busy = -1.0;  ///< of all cores, over the last second; negative: not known
  std::vector<RunStatus::Device> devices;  ///< empty where none can be read

  Json to_json() const;
  static NodeReport from_json(const Json& json);
};

/// The newest reports of many nodes: copied many times a second, so by reference only.
using NodeReports = std::vector<std::shared_ptr<const NodeReport>>;

/// Ranks that somebody else keeps, without copies of them.
class RankList : public std::vector<const ObservedRank*> {
 public:
  RankList() = default;
  /// Of these, which must outlive it.
  RankList(const std::vector<ObservedRank>& ranks);  // NOLINT: it is a view of them
};

/// The ranks of all nodes, ascending; the reports must outlive them.
RankList ranks_of(const NodeReports& reports);

/// The furthest step that any of them is at; 0 where there is none.
int64_t furthest_step(const RankList& ranks);

}  // namespace longhaul::cluster
