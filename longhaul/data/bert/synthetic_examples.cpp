#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/open_source.h"
#include "longhaul/families/kept.h"

namespace longhaul::data {
namespace {

/// Of random tokens: what they have of targets and segments.
class SyntheticExamples final : public TokenSource {
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
  std::vector<std::string> losses() const override {
    std::vector<std::string> all = example_losses();
    if (!next_sentence_) all.pop_back();
    return all;
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

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    tokens_->read(index, batch, row);
    const int64_t length = seq_len();
    const int64_t masked =
        std::max<int64_t>(1, static_cast<int64_t>(kMaskedShare * double(length)));
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>(row * length + i);
      // Spread evenly: of each `length` / `masked` positions one.
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
  bool next_sentence_ = true;
};

}  // namespace

std::unique_ptr<TokenSource> synthetic_examples(int64_t sequences, int64_t seq_len,
                                                int64_t vocab_size, uint64_t seed) {
  return std::make_unique<SyntheticExamples>(
      synthetic_source(sequences, seq_len, vocab_size, seed), seed);
}

}  // namespace longhaul::data
