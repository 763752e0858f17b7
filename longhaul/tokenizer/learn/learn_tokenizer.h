#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/tokenizer/split/patterns.h"

namespace longhaul::tokenizer {

/// Gives the next text, or returns false at the end.
using NextText = std::function<bool(std::string&)>;

struct TrainOptions {
  size_t vocab_size = 16384;  ///< special tokens, the 256 bytes and merges together
  SplitPattern split = SplitPattern::Llama3;
  uint64_t min_frequency = 0;  ///< pairs that occur less often are not merged
  /// The tokens of the first ids, in this order.
  std::vector<std::string> special_tokens;
  std::string bos_token;  ///< one of special_tokens, or empty
  std::string eos_token;
  bool prepend_bos = false;  ///< the post-processor puts BOS before each text
  int threads = 2;           ///< for counting
  /// Called now and then with the bytes of text read, later with the merges made and
  /// wanted.
  std::function<void(uint64_t bytes)> on_read;
  std::function<void(size_t done, size_t wanted)> on_merge;
};

/// Sets the special tokens and the rule for BOS that are customary for the split pattern.
void set_default_special_tokens(TrainOptions& options);

struct TrainedBpe {
  std::vector<std::string> vocab;  ///< by id, as written in tokenizer.json
  struct Merge {
    uint32_t left;
    uint32_t right;
  };
  std::vector<Merge> merges;  ///< by rank
  uint64_t texts = 0;
  uint64_t text_bytes = 0;
  uint64_t pieces = 0;  ///< number of distinct pieces
};

/// Trains byte-level BPE. The merges and their order are those of Hugging Face's
/// BpeTrainer on the same texts with the same split and the byte alphabet. The result
/// does not depend on `threads`. Throws InputError for impossible options, invalid UTF-8
/// (with the text's number), and if there is no text.
TrainedBpe train_bpe(const NextText& next, const TrainOptions& options);

/// Returns the text of tokenizer.json or of tokenizer_config.json.
std::string tokenizer_json_text(const TrainedBpe& trained, const TrainOptions& options);
std::string tokenizer_config_text(const TrainOptions& options);

/// Writes tokenizer.json and tokenizer_config.json into `dir`, which is created.
void write_tokenizer(const fs::path& dir, const TrainedBpe& trained,
                     const TrainOptions& options);

}  // namespace longhaul::tokenizer
