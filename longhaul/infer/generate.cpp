#include "longhaul/infer/generate.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"

namespace longhaul::infer {

int64_t sample(const at::Tensor& logits, const SamplingOptions& options, int64_t step) {
  const at::Tensor wide = logits.to(at::kCPU, at::kFloat);
  if (options.temperature <= 0.0) return wide.argmax().item<int64_t>();
  at::Tensor exact = wide.to(at::kDouble);
  // A quotient by a tiny temperature may be infinite. The largest logit becomes 0 there.
  const double most = exact.max().item<double>();
  if (!std::isfinite(most / options.temperature)) exact = exact.sub(most);
  const at::Tensor p = at::softmax(exact.div(options.temperature), 0);
  const auto [sorted, order] =
      at::sort(p, /*stable=*/true, /*dim=*/0, /*descending=*/true);
  const double* values = sorted.data_ptr<double>();
  int64_t kept = 0;
  double mass = 0.0;
  while (kept < sorted.numel() && (kept == 0 || mass < options.top_p))
    mass += values[kept++];
  const auto bits =
      philox(random_key(options.seed, "sample"), static_cast<uint64_t>(step), 0);
  const uint64_t wide_bits = (uint64_t{bits[0]} << 32) | bits[1];
  double left = static_cast<double>(wide_bits >> 11) * 0x1.0p-53 * mass;
  int64_t chosen = 0;
  while (chosen + 1 < kept && left >= values[chosen]) left -= values[chosen++];
  return order[chosen].item<int64_t>();
}

std::vector<int64_t> generate(const NextId& next, const std::vector<int64_t>& prompt,
                              const SamplingOptions& options,
                              const std::function<bool(int64_t id)>& on_token) {
  LH_CHECK(!prompt.empty(), "generate", "the prompt has no tokens");
  std::vector<int64_t> fresh;
  std::vector<int64_t> input = prompt;
  for (int64_t step = 0; step < options.max_new_tokens; ++step) {
    const int64_t id = next(input, step);
    const auto& stops = options.stop_ids;
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) break;
    fresh.push_back(id);
    if (!on_token(id)) break;
    input = {id};
  }
  return fresh;
}

std::vector<int64_t> encode_prompt(const tokenizer::Tokenizer& tokenizer,
                                   const std::string& text, int64_t vocab_size,
                                   bool add_special_tokens) {
  std::vector<int64_t> ids =
      tokenizer::prompt_ids("generate", tokenizer, text, vocab_size, add_special_tokens);
  if (!ids.empty()) return ids;
  throw InputError("generate", "the prompt has no tokens; give some text");
}

}  // namespace longhaul::infer
