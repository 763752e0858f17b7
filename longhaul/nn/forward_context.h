#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

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

/// Runs one block; a run-time policy (recompute) may wrap it.
using BlockFunction = std::function<at::Tensor(const at::Tensor&)>;
using BlockRunner = std::function<at::Tensor(const BlockFunction&, const at::Tensor&)>;

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
  KvCache* cache = nullptr;
};

}  // namespace longhaul::nn
