
#include <algorithm>

#include "longhaul/base/random.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/families/description/kept.h"

namespace longhaul::data {
namespace {

/// Examples for BERT that are made of random tokens.
class SyntheticExamples final : public ExampleTokens {
 public:
  SyntheticExamples(std::unique_ptr<TokenSource> tokens, uint64_t seed)
      : tokens_(std::move(tokens)), key_(random_key(seed, "synthetic examples")) {}

  int64_t num_sequences() const override { return tokens_->num_sequences(); }
  int64_t seq_len() const override { return tokens_->seq_len(); }
  int64_t max_token_id() const override { return tokens_->max_token_id(); }
  std::string fingerprint() const override {
    return tokens_->fingerprint() + " as examples";
  }
  std::string describe() const override {
    return tokens_->describe() + ", as examples for BERT";
  }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    tokens_->read(index, batch, row);
    const int64_t length = seq_len();
    const int64_t masked =
        std::max<int64_t>(1, static_cast<int64_t>(kMaskedShare * double(length)));
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>(row * length + i);
      // Masks are spread evenly: one among each `length` / `masked` positions.
      const bool chosen = i * masked / length != (i + 1) * masked / length;
      batch.targets[0][at] = chosen ? batch.tokens[at] : kIgnore;
      batch.segments[at] = 2 * i >= length ? 1 : 0;
      batch.document_end[at] = static_cast<int32_t>(length);
    }
    if (!next_sentence_) return;
    batch.targets[1][static_cast<size_t>(row)] =
        static_cast<int32_t>(philox(key_, static_cast<uint64_t>(index), 0)[0] & 1U);
  }

 private:
  std::unique_ptr<TokenSource> tokens_;
  uint64_t key_;
};

}  // namespace

std::unique_ptr<TokenSource> synthetic_examples(int64_t sequences, int64_t seq_len,
                                                int64_t vocab_size, uint64_t seed) {
  return std::make_unique<SyntheticExamples>(
      synthetic_source(sequences, seq_len, vocab_size, seed), seed);
}

}  // namespace longhaul::data
