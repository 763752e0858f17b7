#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::nn {

/// Keys and values of the positions already seen, one pair per layer of a stage; for
/// generation.
struct KvCache {
  struct Layer {
    at::Tensor keys;    ///< [B, capacity, Hkv, D]
    at::Tensor values;  ///< [B, capacity, Hkv, D]
  };
  std::vector<Layer> layers;
  int64_t first_layer = 0;  ///< the first one's number in the whole model
  int64_t length = 0;       ///< positions filled, the same in every layer
};

/// What blocks and stages hand on, in the order of ModelDescription::passed.
using Tensors = std::vector<at::Tensor>;

/// The sequences that a pass works on: T = rows * seq positions, one sequence after
/// another. What the data does not have is undefined.
struct Batch {
  int64_t rows = 0;
  int64_t seq = 0;
  at::Tensor tokens;     ///< [T] int32
  at::Tensor positions;  ///< [T] int32
  /// [rows, seq] int32: the first position that each may attend to; undefined: one
  /// document per sequence.
  at::Tensor document_start;
  /// [rows, seq] int32: one past the last position that each may attend to; undefined:
  /// none attends to what follows it.
  at::Tensor document_end;
  ops::DocumentBounds documents;  ///< of document_start and document_end
  at::Tensor segments;            ///< [T] int32
  /// For dropout: the number of each sequence in the run, [rows] int64, that of each
  /// token's, [T] int64, and each token's index in its whole sequence, [T] int32.
  at::Tensor sequences, sequence_of, index;
  Tensors targets;  ///< by term of the loss: [T] or [rows] int64, negative: none
  /// Numbers of the tokens with a target of term 0, ascending, int64; undefined: found
  /// where they are wanted, which on a device would wait for it.
  at::Tensor target_rows;
};

/// The loss of a pass, by the terms of the model's description: its root is the sum over
/// terms of scale * sum.
struct Losses {
  std::vector<double> scales;  ///< one over each term's denominator in the global batch
  /// Weight of the squared log-partition (Chowdhery et al., "PaLM", section 5); 0: off.
  double z_loss = 0.0;
  /// A block runs again for its gradients: its terms have been added.
  bool again = false;

  Losses() = default;
  explicit Losses(std::vector<double> of_terms)
      : scales(std::move(of_terms)), host_(scales.size(), 0.0) {}
  /// Adds an fp64 scalar to a term, unscaled. One that lies on a device is added there,
  /// so that nothing waits for it; all of a step's lie on the same.
  void add(size_t term, const at::Tensor& sum);
  /// What has been added to each term. Waits for the device.
  std::vector<double> sums() const;
  /// The same as one fp64 tensor [terms] on the device that the pass runs on, which is
  /// not waited for: zeros where nothing has been added.
  at::Tensor sums_on(at::Device device) const;

 private:
  std::vector<double> host_;  ///< of what lay on the CPU
  at::Tensor device_;         ///< [terms] fp64; undefined: nothing lay on a device
};

/// Replaces ops::attention where keys and values lie on several ranks (context
/// parallelism). q [B, S, Hq, D], k and v [B, S, Hkv, D] of this rank's positions, the
/// mask's start and end as Batch::document_start and document_end; result as q.
using AttentionCore = std::function<at::Tensor(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const ops::AttentionMask& mask, bool fused)>;

/// The edges of a region in which features are split over ranks (tensor parallelism,
/// Shoeybi et al., "Megatron-LM"; with the token dim split outside of the regions,
/// Korthikanti et al., "Reducing Activation Recomputation", section 4.2). Absent, a layer
/// has all features.
class SplitRegion {
 public:
  virtual ~SplitRegion() = default;
  /// Ranks that share a region.
  virtual int64_t ranks() const = 0;
  /// Ranks that share the tokens outside of the regions: all of them, or 1.
  virtual int64_t token_parts() const = 0;
  /// Of [T, ...] the rows of the tokens that this rank has outside of the regions.
  virtual at::Tensor outside(const at::Tensor& rows) const = 0;
  /// Activations [T or a part of it, H] -> the linear layers' input [T, H]; the backward
  /// sums the ranks' gradients. Collective.
  virtual ops::LinearInput enter(const at::Tensor& x) const = 0;
  /// Sums the ranks' partial results [T, H] -> [T or a part of it, H]; the result may lie
  /// in the memory of `partial`. Collective.
  virtual at::Tensor leave(const at::Tensor& partial) const = 0;
  /// For a vocabulary that is split: in place over the ranks, `lse` [R] becomes the
  /// log-sum-exp of all, `picked` [R] the sum of all. fp32. Collective.
  virtual void combine_loss(at::Tensor& lse, at::Tensor& picked) const = 0;
  /// For norms over features that are split: fp32 sums of this rank's features become
  /// those of all, in place. Collective.
  virtual void sum_features(at::Tensor& sums) const = 0;
};

/// The numbers that linear layers multiply, forward and backward. What lies between
/// operations, the head and attention are in the compute dtype in every mode.
enum class ProductPrecision {
  Compute,  ///< the operands as they are, in the compute dtype
};

/// What a forward pass needs besides what the stage before hands on. Activations are
/// [T, features].
struct ForwardContext {
  Batch batch;
  Losses* losses = nullptr;  ///< null where none is computed
  bool fused = true;
  ProductPrecision products = ProductPrecision::Compute;
  ops::WeightGradientsPtr weight_gradients;  ///< null without grad mode
  AttentionCore attention;                   ///< empty: ops::attention
  const SplitRegion* region = nullptr;       ///< null: all features are here
  /// The results of attention's core and of the SwiGLU product are not kept but computed
  /// again in the backward (ops/recomputed.h).
  bool selective_recompute = false;
  KvCache* cache = nullptr;
  /// Of the run; absent: nothing is dropped (evaluation).
  std::optional<uint64_t> dropout_key;

  /// SplitRegion::enter, leave and outside where there is a region.
  ops::LinearInput enter(const at::Tensor& x) const {
    return region == nullptr ? ops::LinearInput(x) : region->enter(x);
  }
  at::Tensor leave(const at::Tensor& partial) const {
    return region == nullptr ? partial : region->leave(partial);
  }
  at::Tensor outside(const at::Tensor& rows) const {
    return region == nullptr ? rows : region->outside(rows);
  }
};

}  // namespace longhaul::nn
