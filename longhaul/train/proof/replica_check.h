#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Returns the ranks that do not have what the others have. Ranks with the same key
/// should have the same sum: a rank is outvoted unless more than half of the ranks with
/// its key share its sum. Where no sum has a majority, all of them are outvoted.
std::vector<int> outvoted(const std::vector<int64_t>& keys,
                          const std::vector<int64_t>& sums);

/// Compares bit by bit, through checksums, what several ranks hold alike. Data-parallel
/// ranks hold weights alike, and masters and moments where several of them hold the same
/// elements (zero 0, or several shard groups). Ranks of tp and stages hold alike the
/// weights whose gradients they sum (layout::SumGroup), with their masters and moments.
/// Finds faults of memory and arithmetic on one rank, as long as the difference lasts. It
/// cannot see what went wrong on all ranks alike, or in a gradient before the ranks
/// summed it.
class ReplicaCheck {
 public:
  /// `every` is the number of steps from one check to the next; 0: no step is due. `tell`
  /// is called on every rank with the fields of the event "corruption".
  ReplicaCheck(const TrainingSession& session, int64_t every,
               std::function<void(const Json& fields)> tell);

  /// Compares after an update, when weights are shared, if the step is due or `must` is
  /// set (before a save). Compares only once for a step. Throws TemporaryError, the same
  /// on all ranks, that names ranks and tensor: what was saved before is good, so the run
  /// can start again. Collective.
  void run(int64_t step, bool must);

 private:
  /// The kinds of state that several ranks hold alike, and the number of kinds.
  enum Kind : size_t {
    kWeights,        ///< data-parallel ranks: weights
    kShards,         ///< data-parallel ranks with the same shard: masters and moments
    kExpertWeights,  ///< data-parallel ranks with the same experts
    kExpertShards,   ///< data-parallel ranks with the same shard of experts
    kTensor,         ///< ranks of tp: what none of them has a part of
    kKeys,           ///< ranks of tp with the same key heads
    kTied,           ///< stages with the same embedding
    kKinds
  };
  /// The ranks among which one kind is compared.
  struct Holders {
    comm::Communicator* group = nullptr;  ///< null: nobody holds the kind twice
    std::vector<int64_t> keys;  ///< of each rank; ranks with the same key hold the same
    int64_t alike = 1;          ///< ranks with this rank's key
  };
  struct Part;
  struct Verdict;

  void add_holders(Kind kind, comm::Communicator& group, layout::GroupKind axis,
                   const std::function<int64_t(int rank)>& key_of);
  std::vector<Part> parts() const;
  bool differs(Kind kind, const std::vector<Part>& parts) const;
  Verdict judge(const std::vector<bool>& kinds, const std::vector<Part>& parts) const;
  std::string first_tensor(const Part* part, const Holders& holders) const;
  [[noreturn]] void fail(int64_t step, const Verdict& mine);

  const TrainingSession& session_;
  int64_t every_;
  std::function<void(const Json&)> tell_;
  std::vector<Holders> holders_;
  int64_t checked_step_ = -1;
};

}  // namespace longhaul::train
