#pragma once

#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::parallel {

/// The ranks that a rank shares its parameters with. All outlive their user.
struct DataGroups {
  comm::Communicator* shard = nullptr;     ///< each holds one shard of every bucket
  comm::Communicator* replicas = nullptr;  ///< the same shard in the other shard groups
  /// sums[g - 1]: the ranks over which buckets of sum group g are added as well (norms
  /// under sequence parallelism, key heads held twice, embeddings tied over stages). They
  /// fill the bucket alike and hold the same shard.
  std::vector<comm::Communicator*> sums;
  /// shard and replicas of buckets of experts; null: those above.
  comm::Communicator* expert_shard = nullptr;
  comm::Communicator* expert_replicas = nullptr;

  comm::Communicator& shard_of(const BucketShape& bucket) const {
    return bucket.expert && expert_shard != nullptr ? *expert_shard : *shard;
  }
  comm::Communicator& replicas_of(const BucketShape& bucket) const {
    return bucket.expert && expert_replicas != nullptr ? *expert_replicas : *replicas;
  }
};

/// Keeps replicas of the same weights together: sums gradients over the ranks that see
/// different data, and shares the updated weights (Rajbhandari et al., "ZeRO"; shards
/// inside a group and replicas across as in Zhao et al., "PyTorch FSDP", section 3.2).
/// Gradients are summed, not averaged: the loss is already divided by the global number
/// of targets. What is cut and what is released is FlatSharding's. Collectives are
/// started as early as their input is ready and waited for as late as their result is
/// needed. Collective: every method but release; all ranks of the groups call them in the
/// same order.
class DataParallel {
 public:
  DataParallel(FlatBuffers& flat, DataGroups groups);

  // Weights -------------------------------------------------------------------------

  /// Starts to gather the unit's weights, if they are neither here nor on their way.
  void prefetch(int unit);
  /// After it the unit's weights, and those that every rank keeps, are here and current.
  void need(int unit);
  /// The unit's weights may go. Local.
  void release(int unit);
  /// Starts to give every rank the weights that their owners have written; need() waits.
  void share_weights();
  /// Waits for the weights that are under way: before a program ends, whose buffers must
  /// outlive what is sent from them.
  void finish_weights();

  // Gradients -----------------------------------------------------------------------

  /// Makes room for the unit's gradients of a micro batch.
  void open_gradients(int unit);
  /// The unit's gradients of this micro batch are complete; `last`: of the step's last
  /// one. Starts the reduction that follows from it.
  void close_gradients(int unit, bool last);
  /// Reduces what is left and waits: owned_grads of every bucket hold the sum over ranks
  /// and micro batches.
  void finish_gradients();

  /// Forgets what is under way: after a failure, when no collective may follow.
  void abandon();

  /// Number of units; they count from 0.
  int units() const { return units_; }

 private:
  /// A reduction under way.
  struct Reduction {
    size_t bucket = 0;
    comm::WorkPtr work;
    at::Tensor sent;
    at::Tensor received;
  };
  template <typename Do>
  void for_unit(int unit, const Do& act);
  void settle_weights(size_t index);
  void start_reduction(size_t index);
  void end_reduction(Reduction& reduction);
  void end_reductions(size_t left);
  void sum_owned(comm::Communicator& group, Bucket& bucket);

  FlatBuffers& flat_;
  DataGroups groups_;
  int units_ = 0;
  std::vector<comm::WorkPtr> gathers_;  ///< one per bucket; null: nothing under way
  std::vector<bool> reduced_;           ///< one per bucket: its last reduction has begun
  std::vector<Reduction> reductions_;   ///< in the order of their start
};

}  // namespace longhaul::parallel
