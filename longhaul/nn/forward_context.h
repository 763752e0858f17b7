#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "longhaul/ops/linear.h"
#include "longhaul/ops/weight_gradients.h"

namespace longhaul::nn {

/// Keys and values of the positions already seen, one pair per layer; for generation.
struct KvCache {
  struct Layer {
    at::Tensor keys;    ///< [B, capacity, Hkv, D]
    at::Tensor values;  ///< [B, capacity, Hkv, D]
  };
  std::vector<Layer> layers;
  int64_t length = 0;  ///< positions filled, the same in every layer
};

/// Runs one block; run-time policies (recompute, gathering of sharded weights) may wrap
/// it. `layer` is the block's number in the whole model, or kEmbeddingLayer.
inline constexpr int64_t kEmbeddingLayer = -1;
using BlockFunction = std::function<at::Tensor(const at::Tensor&)>;
using BlockRunner =
    std::function<at::Tensor(int64_t layer, const BlockFunction&, const at::Tensor&)>;

/// Replaces ops::attention where keys and values lie on several ranks (context
/// parallelism). q [B, S, Hq, D], k and v [B, S, Hkv, D] of this rank's positions, start
/// as ForwardContext::document_start; result as q.
using AttentionCore =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const at::Tensor& start, bool fused)>;

/// The edges of a region in which features are split over ranks (tensor parallelism,
/// Shoeybi et al., "Megatron-LM"; with the token dim split outside of the regions,
/// Korthikanti et al., "Reducing Activation Recomputation", section 4.2). Absent, a layer
/// has all features.
class SplitRegion {
 public:
  virtual ~SplitRegion() = default;
  /// Ranks that share a region.
  virtual int64_t ranks() const = 0;
  /// Activations [T or a part of it, H] -> the linear layers' input [T, H]; the backward
  /// sums the ranks' gradients. Collective.
  virtual ops::LinearInput enter(const at::Tensor& x) const = 0;
  /// Sums the ranks' partial results [T, H] -> [T or a part of it, H]; the result may lie
  /// in the memory of `partial`. Collective.
  virtual at::Tensor leave(const at::Tensor& partial) const = 0;
  /// For a vocabulary that is split: in place over the ranks, `lse` [R] becomes the
  /// log-sum-exp of all, `picked` [R] the sum of all. fp32. Collective.
  virtual void combine_loss(at::Tensor& lse, at::Tensor& picked) const = 0;
};

/// What a forward pass needs besides its input. Activations are [T, features] with
/// T = batch * seq, sequences one after another.
struct ForwardContext {
  int64_t batch = 0;
  int64_t seq = 0;
  at::Tensor positions;  ///< [T] int32
  at::Tensor
      document_start;  ///< [batch, seq] int32; undefined: one document per sequence
  bool fused = true;
  ops::WeightGradientsPtr weight_gradients;  ///< null without grad mode
  BlockRunner run_block;                     ///< empty: blocks run plainly
  AttentionCore attention;                   ///< empty: ops::attention
  const SplitRegion* region = nullptr;       ///< null: all features are here
  /// The results of attention's core and of the SwiGLU product are not kept but computed
  /// again in the backward (ops/recomputed.h).
  bool selective_recompute = false;
  KvCache* cache = nullptr;

  /// SplitRegion::enter and leave where there is a region.
  ops::LinearInput enter(const at::Tensor& x) const {
    return region == nullptr ? ops::LinearInput(x) : region->enter(x);
  }
  at::Tensor leave(const at::Tensor& partial) const {
    return region == nullptr ? partial : region->leave(partial);
  }
};

}  // namespace longhaul::nn
