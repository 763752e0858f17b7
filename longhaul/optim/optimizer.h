#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/optim/adamw_composite.h"
#include "longhaul/optim/trust_ratios.h"
#include "longhaul/optim/update_counts.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::optim {

/// The optimizer's own state of the part of a bucket that this rank owns.
struct BucketState {
  at::Tensor master;      ///< master dtype; the weights' own memory where dtypes agree
  at::Tensor exp_avg;     ///< moments dtype
  at::Tensor exp_avg_sq;  ///< moments dtype
};

/// What an optimizer has to know beside its settings.
struct OptimizerInputs {
  TensorOfParameter tensor_of = {};   ///< for LAMB: the whole model's
  uint64_t seed = 0;                  ///< for stochastic rounding: the run's
  std::set<std::string> frozen = {};  ///< parameters of the whole model
};

/// The global norm of what ranks have as Optimizer::gradient_squares. Collective.
double norm_over(comm::Communicator& world, std::vector<double> squares);

/// AdamW or LAMB over flat buffers, on what this rank owns of each bucket. Frozen buckets
/// have an empty state but for their master. Bf16 masters, which are the weights
/// themselves, are rounded stochastically, and bf16 moments with them.
class Optimizer {
 public:
  /// `flat` must outlive this. Moments start at zero, masters as the weights are.
  Optimizer(FlatBuffers& flat, const OptimizerSection& settings,
            OptimizerInputs inputs = {});

  /// Sums of squares of the gradients over what this rank alone counts (Bucket::saved),
  /// fp64 [names]: one for each parameter of the whole model, 0 for what other ranks
  /// have. On the buffers' device, and nothing is waited for: norm_over() makes the
  /// global norm of them.
  at::Tensor gradient_squares(const std::vector<std::string>& names) const;

  /// The global L2 norm of the gradients in fp64: gradient_squares added over the ranks
  /// of `world`, combined in the order of `names`. Collective.
  double gradient_norm(comm::Communicator& world,
                       const std::vector<std::string>& names) const;

  /// One update with owned gradients times `gradient_scale`; writes the owned weights.
  /// Collective over `world` for LAMB, whose tensors' norms span ranks: all ranks, for
  /// tensors of the buffers' device, which is not waited for.
  void step(double lr, double gradient_scale, comm::Communicator& world);

  /// What the last update's rate was multiplied with for this parameter: 1 but for LAMB,
  /// and for parameters without weight decay. Waits for the device.
  double trust_ratio(const FlatMember& member) const;

  /// Copies the masters to the owned weights, after masters were written from outside.
  void publish_masters();

  /// Updates made so far.
  int64_t updates() const { return counts_.of_run(); }
  /// The same by parameter: bias correction counts from it. Frozen ones have had none.
  const UpdateCounts& counts() const { return counts_; }
  /// Goes on from these; what is frozen begins anew.
  void set_counts(UpdateCounts counts);
  /// Parameters of the whole model.
  const std::set<std::string>& frozen() const { return frozen_; }

  /// One per bucket, in their order.
  std::vector<BucketState>& states() { return states_; }
  const std::vector<BucketState>& states() const { return states_; }
  int64_t bytes() const;

 private:
  AdamWStep step_of(const ParameterClass& kind, int64_t update, double lr,
                    double gradient_scale) const;
  /// Calls act(bucket's number, piece) for what is updated, tensor by tensor.
  template <typename Act>
  void for_pieces(const Act& act);
  /// The state of a part of a piece; `range` is of the bucket.
  AdamWTensors tensors_of(size_t bucket, const FlatPiece& piece, FlatRange range) const;
  void adamw_step(double lr, double gradient_scale);
  void lamb_step(double lr, double gradient_scale, comm::Communicator& world);

  FlatBuffers& flat_;
  OptimizerSection settings_;
  std::optional<TrustRatios> ratios_;  ///< LAMB's
  std::optional<uint64_t> rounding_;   ///< the seed, where masters are bf16
  std::vector<BucketState> states_;
  std::set<std::string> frozen_;
  UpdateCounts counts_;
};

}  // namespace longhaul::optim
