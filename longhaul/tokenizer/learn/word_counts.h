#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "longhaul/tokenizer/learn/learn_tokenizer.h"
#include "longhaul/tokenizer/tables/flat_maps.h"

namespace longhaul::tokenizer {

struct WordHash {
  using is_transparent = void;
  size_t operator()(std::string_view word) const {
    return hash_bytes(word.data(), word.size());
  }
};

/// The number of times that each piece occurs in the texts.
struct WordCounts {
  std::unordered_map<std::string, uint64_t, WordHash, std::equal_to<>> words;
  uint64_t texts = 0;
  uint64_t text_bytes = 0;
};

/// Reads all texts batch by batch and counts each batch with options.threads threads.
WordCounts count_words(const NextText& next, const TrainOptions& options);

}  // namespace longhaul::tokenizer
