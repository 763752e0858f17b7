#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

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
};

/// One sampled id from logits [V]; `step` numbers the draws, so that equal (seed, step)
/// and logits give equal ids. Exposed for tests.
int64_t sample(const at::Tensor& logits, const SamplingOptions& options, int64_t step);

/// The id that a model has after `ids`, which follow those of the calls before it; `step`
/// numbers the calls. It may be a collective.
using NextId = std::function<int64_t(const std::vector<int64_t>& ids, int64_t step)>;

/// Continues `prompt` (not empty). `on_token` gets each new id at once and ends the
/// generation by returning false. Returns the new ids.
std::vector<int64_t> generate(const NextId& next, const std::vector<int64_t>& prompt,
                              const SamplingOptions& options,
                              const std::function<bool(int64_t id)>& on_token);

}  // namespace longhaul::infer
