#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhaul/models/model.h"

namespace longhaul::infer {

struct SamplingOptions {
  int64_t max_new_tokens = 128;
  /// 0: greedy, the most likely token each time.
  double temperature = 0.0;
  /// Sample from the smallest set of tokens whose probability reaches this (Holtzman et
  /// al., "The Curious Case of Neural Text Degeneration"). 1: from all.
  double top_p = 1.0;
  uint64_t seed = 0;
  /// Generation ends before one of these.
  std::vector<int64_t> stop_ids;
  bool fused = true;
  at::Device device = at::kCPU;
};

/// One sampled id from logits [V]; `step` numbers the draws, so that equal (seed, step)
/// and logits give equal ids. Exposed for tests.
int64_t sample(const at::Tensor& logits, const SamplingOptions& options, int64_t step);

/// Continues `prompt` (not empty). `on_token` gets each new id at once and ends the
/// generation by returning false. Returns the new ids.
/// model.prepare() has been called for prompt.size() + max_new_tokens positions.
std::vector<int64_t> generate(const models::Model& model,
                              const std::vector<int64_t>& prompt,
                              const SamplingOptions& options,
                              const std::function<bool(int64_t id)>& on_token);

}  // namespace longhaul::infer
