#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::optim {

/// The optimizer's own state of the part of a bucket that this rank owns.
struct BucketState {
  at::Tensor master;      ///< master dtype; the weights' own memory where dtypes agree
  at::Tensor exp_avg;     ///< moments dtype
  at::Tensor exp_avg_sq;  ///< moments dtype
};

/// AdamW over flat buffers, on what this rank owns of each bucket. Frozen buckets have an
/// empty state but for their master.
class Optimizer {
 public:
  /// `flat` must outlive this. Moments start at zero, masters as the weights are.
  Optimizer(FlatBuffers& flat, const OptimizerSection& settings);

  /// The global L2 norm of the gradients in fp64: per-tensor sums over what each rank
  /// alone counts (Bucket::saved), added over the ranks of `world`, combined in the order
  /// of `names`, which are all parameters of the whole model. Collective.
  double gradient_norm(comm::Communicator& world,
                       const std::vector<std::string>& names) const;

  /// One update with owned gradients times `gradient_scale`; writes the owned weights.
  void step(double lr, double gradient_scale);

  /// Copies the masters to the owned weights, after masters were written from outside.
  void publish_masters();

  /// Updates made so far; bias correction counts from it.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

  /// One per bucket, in their order.
  std::vector<BucketState>& states() { return states_; }
  const std::vector<BucketState>& states() const { return states_; }
  int64_t bytes() const;

 private:
  FlatBuffers& flat_;
  OptimizerSection settings_;
  std::vector<BucketState> states_;
  int64_t updates_ = 0;
};

}  // namespace longhaul::optim
