#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/optim/composite_updates.h"
#include "longhaul/optim/trust_ratios.h"
#include "longhaul/optim/update_counts.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::optim {

/// The state of the optimizer for the part of a bucket that this rank owns.
struct BucketState {
  /// In the master dtype; the memory of the weights if dtypes agree; undefined for the
  /// base of an adapter.
  at::Tensor master;
  at::Tensor exp_avg;     ///< moments dtype
  at::Tensor exp_avg_sq;  ///< moments dtype
};

/// What an optimizer has to know besides its settings.
struct OptimizerInputs {
  TensorOfParameter tensor_of = {};   ///< for LAMB: the tensors of the whole model
  uint64_t seed = 0;                  ///< the run's seed, for stochastic rounding
  std::set<std::string> frozen = {};  ///< names of the frozen parameters
  /// False if frozen parameters are the base of an adapter, which needs no state: its
  /// weights in the compute dtype are all that is kept of it.
  bool frozen_have_masters = true;
};

/// Returns the global norm that follows from Optimizer::gradient_squares of all ranks.
/// Collective.
double norm_over(comm::Communicator& world, std::vector<double>& squares);

/// AdamW or LAMB over flat buffers, for the part of each bucket that this rank owns. The
/// state of a frozen bucket has a master only, and that of an adapter's base nothing.
/// Bf16 masters are the weights themselves; with such masters, masters and bf16 moments
/// are rounded stochastically.
class Optimizer {
 public:
  /// Makes the state of the buckets of `flat`, which must outlive the optimizer. Moments
  /// start at zero, masters at the weights.
  Optimizer(tensor::FlatBuffers& flat, const OptimizerSection& settings,
            OptimizerInputs inputs = {});

  /// Returns sums of squares of the gradients over Bucket::saved, the elements that no
  /// other rank counts, fp64 [names]: one sum for each parameter of the whole model, 0
  /// for parameters of other ranks. The sums are on the device of the buffers, and the
  /// host does not wait. norm_over() makes the global norm of the sums. On a device
  /// without 64-bit numbers the result is fp32 sums of blocks, of which the host makes
  /// these sums (squares_of_read).
  at::Tensor gradient_squares(const std::vector<std::string>& names) const;
  /// Returns one sum for each name of what the host has read of gradient_squares(names).
  std::vector<double> squares_of_read(const std::vector<std::string>& names,
                                      const std::vector<double>& read) const;

  /// Makes one update with owned gradients times `gradient_scale`, and writes the owned
  /// weights. For LAMB, whose norms span ranks, this is collective over `world`, which
  /// has all ranks and takes tensors of the device of the buffers. The host does not wait
  /// for the device.
  void step(double lr, double gradient_scale, comm::Communicator& world);

  /// Returns the factor of the rate of this parameter in the last update: 1 for AdamW and
  /// for parameters without weight decay. Waits for the device.
  double trust_ratio(const tensor::FlatMember& member) const;

  /// Copies the masters to the owned weights, after masters were written from outside.
  void publish_masters();

  /// Returns the updates that the run has made.
  int64_t updates() const { return counts_.of_run(); }
  /// Returns the updates of each parameter, which the bias correction follows from.
  /// Frozen parameters have had none.
  const UpdateCounts& counts() const { return counts_; }
  /// Continues from these counts. The counts of frozen parameters become 0.
  void set_counts(UpdateCounts counts);
  /// Returns the frozen parameters of the whole model.
  const std::set<std::string>& frozen() const { return frozen_; }

  /// Returns the state of each bucket, in the order of the buckets.
  std::vector<BucketState>& states() { return states_; }
  const std::vector<BucketState>& states() const { return states_; }
  int64_t bytes() const;

 private:
  struct CountedGradients;
  CountedGradients counted_gradients(const std::vector<std::string>& names) const;
  AdamWStep step_of(const tensor::ParameterClass& kind, int64_t update, double lr,
                    double gradient_scale) const;
  /// Calls act(number of the bucket, piece) for each part of a tensor that is updated.
  template <typename Act>
  void for_pieces(const Act& act);
  /// Returns the state of a part of a piece; `range` counts elements of the bucket.
  AdamWTensors tensors_of(size_t bucket, const tensor::FlatPiece& piece,
                          layout::FlatRange range) const;
  void adamw_step(double lr, double gradient_scale);
  void lamb_step(double lr, double gradient_scale, comm::Communicator& world);

  tensor::FlatBuffers& flat_;
  OptimizerSection settings_;
  std::optional<TrustRatios> ratios_;  ///< for LAMB
  std::optional<uint64_t> rounding_;   ///< the seed, if masters are bf16
  std::vector<BucketState> states_;
  std::set<std::string> frozen_;
  UpdateCounts counts_;
};

}  // namespace longhaul::optim
