#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::infer {

struct SamplingOptions {
  int64_t max_new_tokens = 128;
  /// The temperature of the softmax. With 0 generation is greedy: it takes the most
  /// likely token each time.
  double temperature = 0.0;
  /// Tokens are sampled from the smallest set whose probability reaches top_p (Holtzman
  /// et al., "The Curious Case of Neural Text Degeneration"). With 1, tokens are sampled
  /// from all tokens.
  double top_p = 1.0;
  uint64_t seed = 0;
  /// Generation ends when one of these ids is chosen, which is not returned itself.
  std::vector<int64_t> stop_ids;
};

/// Samples one id from logits [V]. `step` numbers the draws: equal seed, step and logits
/// give equal ids.
int64_t sample(const at::Tensor& logits, const SamplingOptions& options, int64_t step);

/// A function that returns the id that a model puts after `ids`, which follow the ids of
/// the calls before. `step` numbers the calls. The function may be a collective.
using NextId = std::function<int64_t(const std::vector<int64_t>& ids, int64_t step)>;

/// Continues `prompt`, which must not be empty, and returns the new ids. `on_token` gets
/// each new id at once, and ends the generation by returning false.
std::vector<int64_t> generate(const NextId& next, const std::vector<int64_t>& prompt,
                              const SamplingOptions& options,
                              const std::function<bool(int64_t id)>& on_token);

/// Returns tokenizer::prompt_ids(). Throws InputError for a text without tokens, too.
std::vector<int64_t> encode_prompt(const tokenizer::Tokenizer& tokenizer,
                                   const std::string& text, int64_t vocab_size,
                                   bool add_special_tokens = true);

}  // namespace longhaul::infer
