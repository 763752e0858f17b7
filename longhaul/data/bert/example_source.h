#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// Returns the terms of the loss that examples have targets for: kMaskedToken, by
/// position, and kNextSentence, by sequence.
inline std::vector<std::string> example_losses() { return {kMaskedToken, kNextSentence}; }

/// The base class of sources of examples for BERT.
class ExampleTokens : public TokenSource {
 public:
  std::vector<std::string> losses() const override {
    return next_sentence_ ? example_losses() : std::vector<std::string>{kMaskedToken};
  }
  void keep_losses(const std::vector<std::string>& wanted) override {
    next_sentence_ = wanted != std::vector<std::string>{kMaskedToken};
  }
  void shape(TokenBatch& batch, int64_t rows) const override {
    batch.resize(rows, seq_len());
    if (next_sentence_) batch.targets.emplace_back(static_cast<size_t>(rows));
    batch.segments.resize(batch.tokens.size());
    batch.document_end.resize(batch.tokens.size());
  }

 protected:
  bool next_sentence_ = true;  ///< whether batches have targets for kNextSentence
};

/// Opens packed examples (example_store.h) for a model with masked-token and
/// next-sentence heads. In a batch, document_end is where a row's padding begins. Throws
/// InputError when the rows have another length than `seq_len`, and for a damaged
/// directory.
std::unique_ptr<TokenSource> example_source(const fs::path& path, int64_t seq_len,
                                            bool verify = true);

/// Throws InputError, with both lengths, when `found`, the length of the rows, is not
/// `seq_len`.
void check_example_length(const fs::path& path, int64_t found, int64_t seq_len);

/// Makes a synthetic source of examples for BERT, which have two segments each. A share
/// of kMaskedShare of the tokens is masked out.
std::unique_ptr<TokenSource> synthetic_examples(int64_t sequences, int64_t seq_len,
                                                int64_t vocab_size, uint64_t seed);

}  // namespace longhaul::data
