#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/cluster/names.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/run/run_status.h"

namespace longhaul::cluster {

/// The state of a worker's process according to the kernel.
enum class ProcessState {
  Running,
  Stopped,  ///< by SIGSTOP or a debugger
  Gone,
};
inline constexpr NamesOf<ProcessState, 3> kProcessStates{{"running", "stopped", "gone"}};
inline const char* process_state_name(ProcessState state) {
  return kProcessStates.of(state);
}

/// One rank as its node sees it. Times are ages in seconds, so that the nodes need no
/// common clock.
struct ObservedRank : run::RankFacts {
  std::string node;
  ProcessState process = ProcessState::Running;
  std::string waits_group;
  int64_t waits_number = 0;
  std::string waits_verb;
  std::string waits_for;  ///< for people: "all_reduce number 8812 (4096 bytes) on 'tp'"
  double waits_age = 0.0;
  double phase_age = 0.0;
  double progress_age = 0.0;  ///< seconds since the rank did anything but wait
  double gone_age = 0.0;      ///< seconds since the process was seen to be gone
  /// How many processes of the rank's cgroup the kernel has killed for want of memory,
  /// and the limit in bytes (0: none is known). Both are set for a rank that was killed.
  int64_t memory_kills = 0;
  int64_t memory_limit = 0;
  double step_age = 0.0;  ///< seconds since the last step ended; 0 before the first step
  double wall_seconds = 0.0;  ///< median of the last steps' times
  double busy_seconds = 0.0;  ///< median of the last steps' times without waiting
  /// By group, the number of the newest collective that the rank has entered.
  std::map<std::string, int64_t> entered;

  /// Returns "rank 17 on n2 (pp 1 dp 0 cp 0 tp 3)".
  std::string name() const;
  bool operator==(const ObservedRank&) const = default;
  /// Returns whether the process is gone without having ended by itself.
  bool killed() const { return process == ProcessState::Gone && exit_code < 0; }
  bool failed() const { return !failure.empty() || exit_code > 0 || killed(); }

  /// Returns a row of values, without names, and without the node, which the report has:
  /// a supervisor reads thousands of rows a second. Ages are rounded to milliseconds.
  Json to_json() const;
  /// Throws InputError for a row that no program of this version sends.
  static ObservedRank from_json(const Json& json, const std::string& node);
};

/// Returns what a rank's record says at the moment `now` (machine_seconds).
ObservedRank observe(const run::RankState& state, const std::string& node, double now);

/// What a node reports of its ranks and of itself.
struct NodeReport {
  std::string node;
  std::vector<ObservedRank> ranks;
  int64_t memory_used_bytes = 0;
  int64_t memory_total_bytes = 0;
  double cpu_busy =
      -1.0;  ///< share of all cores, over the last second; negative: unknown
  std::vector<run::RunStatus::Device> devices;  ///< empty where no device can be read

  Json to_json() const;
  static NodeReport from_json(const Json& json);
};

/// The newest reports of many nodes, held by reference: they are copied many times a
/// second.
using NodeReports = std::vector<std::shared_ptr<const NodeReport>>;

/// A view of ranks that another object keeps.
class RankList : public std::vector<const ObservedRank*> {
 public:
  RankList() = default;
  /// Views these ranks, which must outlive the view.
  RankList(const std::vector<ObservedRank>& ranks);  // NOLINT: it is a view of them
};

/// Returns the ranks of all nodes in ascending order; the reports must outlive the list.
RankList ranks_of(const NodeReports& reports);

/// Returns the furthest step at which any rank is; 0 if there is no rank.
int64_t furthest_step(const RankList& ranks);

}  // namespace longhaul::cluster
