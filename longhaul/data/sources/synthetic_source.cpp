#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/random.h"
#include "longhaul/base/text.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {
namespace {

class SyntheticSource final : public TokenSource {
 public:
  SyntheticSource(int64_t sequences, int64_t length, int64_t vocabulary, uint64_t seed)
      : sequences_(sequences),
        length_(length),
        vocabulary_(vocabulary),
        seed_(seed),
        key_(random_key(seed, "synthetic")) {}

  int64_t num_sequences() const override { return sequences_; }
  int64_t seq_len() const override { return length_; }
  int64_t max_token_id() const override { return vocabulary_; }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    int32_t previous = token(index, 0);
    for (size_t i = 0; i < to.tokens.size(); ++i) {
      to.tokens[i] = previous;
      previous = token(index, static_cast<uint64_t>(i) + 1);
      to.targets[i] = previous;
    }
    fill_plain_positions(to);
  }

  std::string describe() const override {
    return fmt::format("{} synthetic sequences of {} tokens below {}",
                       grouped(sequences_), length_, vocabulary_);
  }
  std::string fingerprint() const override {
    return hash_hex(fmt::format("synthetic {} {} {}", sequences_, vocabulary_, seed_));
  }

 private:
  int32_t token(int64_t sequence, uint64_t position) const {
    const auto bits = philox(key_, static_cast<uint64_t>(sequence), position / 4);
    // The high half of a 32 x 32 bit product is uniform and needs no division.
    return static_cast<int32_t>(
        (uint64_t{bits[position % 4]} * static_cast<uint64_t>(vocabulary_)) >> 32);
  }

  int64_t sequences_;
  int64_t length_;
  int64_t vocabulary_;
  uint64_t seed_;
  uint64_t key_;
};

}  // namespace

std::unique_ptr<TokenSource> synthetic_source(int64_t sequences, int64_t seq_len,
                                              int64_t vocab_size, uint64_t seed) {
  LH_CHECK(sequences > 0 && seq_len > 0 && vocab_size > 0 && vocab_size <= INT32_MAX,
           "data", "synthetic source of {} sequences of {} tokens below {}", sequences,
           seq_len, vocab_size);
  return std::make_unique<SyntheticSource>(sequences, seq_len, vocab_size, seed);
}

}  // namespace longhaul::data
