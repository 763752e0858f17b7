#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Returns the ranks that do not have what the others have. Ranks with the same key
/// should have the same sum: a rank is outvoted unless more than half of the ranks with
/// its key share its sum. Where no sum has a majority, all of them are outvoted.
std::vector<int> outvoted(const std::vector<int64_t>& keys,
                          const std::vector<int64_t>& sums);

/// Compares bit by bit, through checksums, what data-parallel ranks hold alike: weights,
/// and also masters and moments where several ranks hold the same elements (zero 0, or
/// several shard groups). Finds faults of memory and arithmetic on one rank, as long as
/// the difference lasts. It cannot see what went wrong on all ranks alike, or in a
/// gradient before the gradient was summed.
class ReplicaCheck {
 public:
  /// `every` is the number of steps from one check to the next; 0: no step is due. `tell`
  /// is called on every rank with the fields of the event "corruption". Collective.
  ReplicaCheck(const Session& session, int64_t every,
               std::function<void(const Json& fields)> tell);

  /// Compares after an update, when weights are shared, if the step is due or `must` is
  /// set (before a save). Compares only once for a step. Throws TemporaryError, the same
  /// on all ranks, that names ranks and tensor: what was saved before is good, so the run
  /// can start again. Collective.
  void run(int64_t step, bool must);

 private:
  struct Part;
  struct Finding;
  std::vector<Part> parts() const;
  bool differs(const std::vector<Part>& parts);
  Finding find(const std::vector<Part>& parts);
  std::vector<std::vector<int64_t>> gather(const std::vector<int64_t>& mine);
  std::vector<int> outvoted_in(const std::vector<std::vector<int64_t>>& rows,
                               size_t column, bool owned) const;

  const Session& session_;
  int64_t every_;
  std::function<void(const Json&)> tell_;
  std::vector<int64_t> world_ranks_;  ///< world ranks of the data-parallel group
  std::vector<int64_t> shards_;       ///< the shard that each rank of the group holds
  int64_t checked_step_ = -1;
};

}  // namespace longhaul::train
