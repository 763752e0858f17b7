#pragma once

#include <string>

#include "apps/try/text_sample.h"
#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Where and how long `longhaul try` works.
struct TryOptions {
  fs::path dir;           ///< the directory to make; it must not exist
  double seconds = 60.0;  ///< about how long everything may take
};

/// Runs the whole chain on a text: tokenizer, token stores, a small model, training, a
/// sample of the model's text, a Hugging Face directory. Each command is a process of
/// this program and is printed before it runs; the commands that a person would type
/// again are printed once more at the end, with what to enlarge. Training gets the time
/// that is left, by the speed that a few steps have shown. Where a command fails or a
/// signal arrives, the directory is removed, and an Error of the kind that fits the cause
/// is thrown.
void run_try_chain(const TextSample& sample, const TryOptions& options);

/// Returns the size of the tokenizer's vocabulary for a text of this size.
int64_t try_vocab_size(uint64_t text_bytes);

/// Returns the text of config.json for the small Llama.
std::string try_model_json(int64_t vocab_size, int64_t bos, int64_t eos);

/// The values in the run file that differ from one text to another.
struct TryRunFile {
  fs::path dir;  ///< the directory of the whole chain
  int64_t steps = 0;
  bool bf16 = true;
};
/// Returns the text of the run file.
std::string try_run_toml(const TryRunFile& file);

/// What decides the number of training steps.
struct TrySpeed {
  double seconds = 0.0;          ///< left for training
  double sequences_per_s = 0.0;  ///< as measured
  int64_t train_sequences = 0;   ///< in one pass over the data
};
/// Returns the number of training steps: at least 1, and at most 20 passes over the data.
int64_t try_steps(const TrySpeed& speed);

}  // namespace longhaul::apps
