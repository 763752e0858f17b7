#pragma once

#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::parallel {

/// The groups of ranks that share parameters with this rank. They outlive DataParallel.
struct DataGroups {
  comm::Communicator* shard = nullptr;     ///< ranks with one shard each of every bucket
  comm::Communicator* replicas = nullptr;  ///< ranks with this shard in all shard groups
  /// sums[g - 1]: the ranks that hold the same buckets of sum group g, and the same shard
  /// of them. Their gradients are added too (norms under sequence parallelism, key heads
  /// held twice, embeddings tied over stages). Norms of ranks that all have all tokens
  /// take the gradients of the first rank instead.
  std::vector<comm::Communicator*> sums;
  /// The groups `shard` and `replicas` for buckets of experts. If these are null,
  /// `shard` and `replicas` serve such buckets too.
  comm::Communicator* expert_shard = nullptr;
  comm::Communicator* expert_replicas = nullptr;

  comm::Communicator& shard_of(const layout::BucketShape& bucket) const {
    return bucket.expert && expert_shard != nullptr ? *expert_shard : *shard;
  }
  comm::Communicator& replicas_of(const layout::BucketShape& bucket) const {
    return bucket.expert && expert_replicas != nullptr ? *expert_replicas : *replicas;
  }
};

/// Keeps replicas of the same weights together: sums gradients over the ranks that see
/// different data, and shares the updated weights (Rajbhandari et al., "ZeRO"). Shards
/// inside a group and replicas across groups follow Zhao et al., "PyTorch FSDP", section
/// 3.2. Gradients are summed, not averaged: the loss is already divided by the global
/// number of targets. FlatSharding says what is cut and what is released. Collectives are
/// started as soon as their input is ready, and waited for only when their result is
/// needed. Every method but release is Collective: all ranks of the groups call them in
/// the same order.
class DataParallel {
 public:
  DataParallel(tensor::FlatBuffers& flat, DataGroups groups);

  // Weights -------------------------------------------------------------------------

  /// Starts to gather the unit's weights, unless they are here or on their way.
  void prefetch(int unit);
  /// Makes the unit's weights, and the weights that every rank keeps, present and
  /// current.
  void need(int unit);
  /// Frees the unit's weights. This is no collective.
  void release(int unit);
  /// The weights that their owners have written: all of them, or after an update the
  /// trained ones.
  enum class Written { All, Trained };
  /// Starts to send every rank the weights that their owners have written; need() waits.
  void share_weights(Written written = Written::All);
  /// Waits for the weights that are under way. A program calls this before it ends, since
  /// buffers must outlive what is sent from them.
  void finish_weights();

  // Gradients -----------------------------------------------------------------------

  /// Gives the unit's gradients of a micro batch memory, if they have none.
  void open_gradients(int unit);
  /// Must be called when the unit's gradients of a micro batch are complete. Starts their
  /// reduction if it is due. `last` marks the step's last micro batch.
  void close_gradients(int unit, bool last);
  /// Reduces the remaining gradients and waits. Afterwards owned_grads of every bucket
  /// hold the sum over ranks and micro batches, with the same bits on all ranks that
  /// hold the same parameters.
  void finish_gradients();

  /// Forgets operations under way, after a failure, when no collective may follow.
  void abandon();

  /// Returns the number of units, which are numbered from 0.
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
  at::Tensor received_by(const tensor::Bucket& bucket, const at::Tensor& sent);
  void end_reduction(Reduction& reduction);
  void end_reductions(size_t left);
  void sum_owned(comm::Communicator& group, tensor::Bucket& bucket);
  void make_one(tensor::Bucket& bucket);

  tensor::FlatBuffers& flat_;
  DataGroups groups_;
  int units_ = 0;
  std::vector<comm::WorkPtr> gathers_;  ///< one per bucket; null: no gather under way
  std::vector<bool> reduced_;           ///< one per bucket: the last reduction has begun
  std::vector<Reduction> reductions_;   ///< in the order of their start
};

}  // namespace longhaul::parallel
