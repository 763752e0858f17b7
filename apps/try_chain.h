#pragma once

#include <string>
#include <vector>

#include "apps/text_sample.h"
#include "longhaul/base/file.h"

namespace longhaul::apps {

struct TryOptions {
  fs::path dir;           ///< made; nothing may be there
  double seconds = 60.0;  ///< for all of it, about
};

/// The whole chain on a text: tokenizer, token stores, a small model, training, a sample
/// of what it writes, a Hugging Face directory. Each command is a process of this program
/// and is printed before it runs; those that a person would type again are printed once
/// more at the end, with what to enlarge. Training gets what is left of the seconds, by
/// the speed that a few steps have shown. Where a command fails or a signal comes the
/// directory goes, and an Error of the kind that fits the cause says so.
void run_try_chain(const TextSample& sample, const TryOptions& options);

/// Tokens of the tokenizer for a text of this size.
int64_t try_vocab_size(uint64_t text_bytes);

/// config.json of the small Llama.
std::string try_model_json(int64_t vocab_size, int64_t bos, int64_t eos);

/// What the run file says, for the text of it.
struct TryRunFile {
  fs::path dir;  ///< of the whole chain
  int64_t steps = 0;
  bool bf16 = true;
};
std::string try_run_toml(const TryRunFile& file);

/// Steps that a training may have.
struct TrySpeed {
  double seconds = 0.0;          ///< that are left for training
  double sequences_per_s = 0.0;  ///< as measured
  int64_t train_sequences = 0;   ///< of the data
};
/// At least 1, and at most so many that the data is read 20 times.
int64_t try_steps(const TrySpeed& speed);

}  // namespace longhaul::apps
