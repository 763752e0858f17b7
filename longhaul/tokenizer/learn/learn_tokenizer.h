#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/tokenizer/split/split.h"

namespace longhaul::tokenizer {

/// Hands over the next text; false at the end.
using NextText = std::function<bool(std::string&)>;

struct TrainOptions {
  size_t vocab_size = 16384;  ///< special tokens, the 256 bytes and merges together
  SplitPattern split = SplitPattern::Llama3;
  uint64_t min_frequency = 0;  ///< a pair that is seen less often is not merged
  /// The first ids, in this order.
  std::vector<std::string> special_tokens;
  std::string bos_token;  ///< one of special_tokens, or empty
  std::string eos_token;
  bool prepend_bos = false;  ///< the post-processor puts BOS before each text
  int threads = 2;           ///< for counting
  /// Called now and then: bytes of text read, then merges made of those wanted.
  std::function<void(uint64_t bytes)> on_read;
  std::function<void(size_t done, size_t wanted)> on_merge;
};

/// The special tokens that are customary for a pattern, and the rule for BOS.
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
  uint64_t pieces = 0;  ///< distinct
};

/// Trains byte-level BPE: the merges, in order, of Hugging Face's BpeTrainer on the same
/// texts with the same split and the byte alphabet. The result does not depend on
/// `threads`. InputError: impossible options, invalid UTF-8 (with the text's number), no
/// text at all.
TrainedBpe train_bpe(const NextText& next, const TrainOptions& options);

/// The text of tokenizer.json and of tokenizer_config.json.
std::string tokenizer_json_text(const TrainedBpe& trained, const TrainOptions& options);
std::string tokenizer_config_text(const TrainOptions& options);

/// Writes both into `dir`, which is made.
void write_tokenizer(const fs::path& dir, const TrainedBpe& trained,
                     const TrainOptions& options);

}  // namespace longhaul::tokenizer
