#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Who does not have what the others have: of those with the same key, the ranks whose
/// sum more than half of them do not share; all of them where no sum has a majority.
std::vector<int> outvoted(const std::vector<int64_t>& keys,
                          const std::vector<int64_t>& sums);

/// Compares, bit by bit by checksums, what data-parallel ranks hold alike: weights, and
/// with them masters and moments where several ranks hold the same (zero 0, or several
/// shard groups). Finds memory and arithmetic that went wrong on one rank, as long as the
/// difference lasts; what went wrong on all alike, or into a gradient before it was
/// summed, it cannot see.
class ReplicaCheck {
 public:
  /// Every so many steps; 0: never. `tell`: every rank hears the fields of the
  /// event "corruption". Collective.
  ReplicaCheck(const Session& session, int64_t every,
               std::function<void(const Json& fields)> tell);

  /// After an update, weights shared. Compares when the step is due, or when it must
  /// (before something is saved), once for a step. TemporaryError, the same on all ranks,
  /// names ranks and tensor: what was saved before is good, so the run can start again.
  /// Collective.
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
  std::vector<int64_t> world_ranks_;  ///< of the data-parallel group
  std::vector<int64_t> shards_;       ///< which shard each of them holds
  int64_t checked_step_ = -1;
};

}  // namespace longhaul::train
