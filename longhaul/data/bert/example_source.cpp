#include "longhaul/data/bert/example_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/bert/example_store.h"

namespace longhaul::data {
namespace {

class ExampleSource final : public ExampleTokens {
 public:
  ExampleSource(const fs::path& path, int64_t seq_len, bool verify)
      : store_(path, verify) {
    check_example_length(path, this->seq_len(), seq_len);
  }

  int64_t num_sequences() const override { return store_.info().rows; }
  int64_t seq_len() const override { return store_.info().form.seq_len; }
  int64_t max_token_id() const override { return store_.info().max_token_id + 1; }
  std::string fingerprint() const override { return store_.info().fingerprint(); }
  std::string tokenizer_fingerprint() const override {
    return store_.info().tokenizer_fingerprint;
  }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    LH_CHECK(batch.targets.size() == losses().size() &&
                 batch.segments.size() == batch.tokens.size() &&
                 batch.document_end.size() == batch.tokens.size(),
             "data", "a batch of another shape than examples have");
    const auto length = static_cast<size_t>(batch.seq_len);
    const size_t begin = static_cast<size_t>(row) * length;
    ExampleRow example{to.tokens, std::span(batch.segments).subspan(begin, length),
                       to.targets};
    store_.read(index, example);
    fill_plain_positions(to);
    std::ranges::fill(std::span(batch.document_end).subspan(begin, length),
                      static_cast<int32_t>(example.length));
    if (next_sentence_) {
      batch.targets[1][static_cast<size_t>(row)] = example.next_sentence;
    }
  }

  std::string describe() const override {
    const ExampleStoreInfo& info = store_.info();
    return fmt::format(
        "packed examples {}: {} of {} tokens, at most {} of them masked, from {}",
        store_.path().string(), counted(info.rows, "example"), info.form.seq_len,
        info.form.predictions,
        counted(static_cast<int64_t>(info.origins.size()), "shard"));
  }

 private:
  ExampleStore store_;
};

}  // namespace

std::unique_ptr<TokenSource> example_source(const fs::path& path, int64_t seq_len,
                                            bool verify) {
  return std::make_unique<ExampleSource>(path, seq_len, verify);
}

void check_example_length(const fs::path& path, int64_t found, int64_t seq_len) {
  if (found == seq_len) return;
  fail_input("data",
             "{}: its rows have {} tokens, data.seq_len is {}; rows cannot be cut again: "
             "use shards whose rows have data.seq_len tokens, or set data.seq_len = {}",
             path.string(), found, seq_len, found);
}

}  // namespace longhaul::data
