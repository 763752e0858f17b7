#pragma once

namespace longhaul {

/// Where an RMS norm applies its weight w. x_normed is x / sqrt(mean(x^2) + eps) in fp32,
/// and cast converts to the compute dtype. With fp32 activations the first two forms are
/// the same.
enum class RmsForm {
  WeightAfterCast,   ///< cast(x_normed) * w: Llama, Mistral and Qwen
  WeightBeforeCast,  ///< cast(x_normed * w): OLMo 2 and 3
  OnePlusWeight,     ///< cast(x_normed * (1 + w)), w begins as zero: Gemma 3
};

}  // namespace longhaul
