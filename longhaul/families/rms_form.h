#pragma once

namespace longhaul {

/// Where an RMS norm takes its weight w, x_normed being x / sqrt(mean(x^2) + eps) in
/// fp32. With fp32 activations the first two are the same.
enum class RmsForm {
  WeightAfterCast,   ///< cast(x_normed) * w: Llama, Mistral and Qwen
  WeightBeforeCast,  ///< cast(x_normed * w): OLMo 2 and 3
  OnePlusWeight,     ///< cast(x_normed * (1 + w)), w zero at first: Gemma 3
};

}  // namespace longhaul
