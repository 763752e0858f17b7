#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::parallel {

/// Keeps replicas of the same weights together: sums gradients over the ranks that see
/// different data, and shares the updated weights (Rajbhandari et al., "ZeRO").
/// Gradients are summed, not averaged: the loss is already divided by the global number
/// of targets. Collective: every method; the ranks of `data` call them in the same order.
class DataParallel {
 public:
  /// zero: 0 every rank updates everything; 1 each rank updates its own shard of every
  /// bucket. Both stay referenced and must outlive this.
  DataParallel(FlatBuffers& flat, comm::Communicator& data, int zero);

  /// After it, owned() of every bucket's gradients holds the sum over ranks.
  void reduce_gradients();
  /// After it, every rank has the weights that their owners have written.
  void share_weights();

  /// What this rank updates of a bucket.
  FlatRange owned(const Bucket& bucket) const;
  /// What this rank writes into checkpoints: its share, also where all ranks hold all.
  FlatRange saved(const Bucket& bucket) const;
  /// True where owned ranges of different ranks are different parts.
  bool sharded() const { return zero_ >= 1; }

 private:
  void reduce(Bucket& bucket);

  FlatBuffers& flat_;
  comm::Communicator& data_;
  int zero_;
};

}  // namespace longhaul::parallel
