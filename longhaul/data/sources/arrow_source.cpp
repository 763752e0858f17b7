#include "longhaul/data/sources/arrow_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/sources/saved_dataset.h"

namespace longhaul::data {
namespace {

/// ListColumn::copy() accepts a value `also` beside the ids. For a column that may hold
/// only ids `also` is 0, which is an id itself.
constexpr int64_t kNothing = 0;

class SavedDatasetSource final : public TokenSource {
 public:
  SavedDatasetSource(SavedDataset dataset, int64_t length)
      : dataset_(std::move(dataset)), length_(length) {
    const fs::path& path = dataset_.path;
    if (dataset_.shortest != dataset_.longest) {
      fail_input("data",
                 "{}: its rows have {} to {} tokens; all rows must have one length to be "
                 "read in place: train packs them into a token store, other verbs need "
                 "'longhaul data build'",
                 path.string(), dataset_.shortest, dataset_.longest);
    }
    if (dataset_.shortest != length) {
      fail_input("data",
                 "{}: its rows have {} tokens, data.seq_len is {}; set data.seq_len = "
                 "{}, or cut the data anew",
                 path.string(), dataset_.shortest, length, dataset_.shortest);
    }
  }

  int64_t num_sequences() const override { return dataset_.rows; }
  int64_t seq_len() const override { return length_; }
  int64_t max_token_id() const override { return 0; }
  void limit_ids(int64_t below) override { limit_ = std::min(limit_, below); }
  std::string fingerprint() const override { return dataset_.fingerprint; }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    const SavedBatch& from = dataset_.batch_of(index);
    const int64_t local = index - from.first_row;
    if (!from.ids.copy(local, 0, to.tokens, limit_, kNothing)) {
      fail_value(from, dataset_.field, from.ids, index, kNothing);
    }
    const size_t targets = to.targets.size() - 1;
    if (dataset_.has_labels) {
      const bool good =
          from.labels.copy(local, 1, to.targets.first(targets), limit_, kIgnore);
      if (!good) fail_value(from, "labels", from.labels, index, kIgnore);
    } else {
      std::copy(to.tokens.begin() + 1, to.tokens.end(), to.targets.begin());
    }
    to.targets.back() = kIgnore;
    if (dataset_.has_mask) {
      const int64_t length = length_without_padding(from, local, index);
      mask_padding(length, to);
      set_real_length(batch, row, length);
    }
    fill_plain_positions(to);
  }

  void check_rows(const std::atomic<bool>& stop) const override {
    TokenBatch batch;
    batch.resize(1, length_);
    for (int64_t i = 0; i < dataset_.rows && !stop; ++i) read(i, batch, 0);
  }

  std::string describe() const override {
    return fmt::format(
        "save_to_disk directory {}: {} of {} in {}{}{}", dataset_.path.string(),
        counted(dataset_.rows, "sequence"), length_,
        counted(std::ssize(dataset_.files), "file"),
        dataset_.field == kIdsField ? "" : fmt::format(", ids of '{}'", dataset_.field),
        dataset_.has_labels ? "" : ", without labels");
  }

 private:
  int64_t length_without_padding(const SavedBatch& from, int64_t local,
                                 int64_t index) const {
    const int64_t valid = from.attention_mask.leading_ones(local);
    if (valid < 0) {
      dataset_.fail_row(from, index,
                        "attention_mask is not ones followed by zeros; pad at the end of "
                        "a row only");
    }
    return valid;
  }

  static void mask_padding(int64_t valid, const BatchRow& to) {
    // Position i predicts token i + 1. From the last token on there is no next token to
    // predict.
    const auto begin = static_cast<size_t>(std::max<int64_t>(valid - 1, 0));
    std::fill(to.targets.begin() + static_cast<ptrdiff_t>(begin), to.targets.end(),
              kIgnore);
  }

  [[noreturn]] void fail_value(const SavedBatch& from, const std::string& name,
                               const ListColumn& column, int64_t index,
                               int64_t also) const {
    dataset_.fail_row(
        from, index,
        fmt::format("{} holds {}, but token ids are from 0 to {}; use data made with the "
                    "model's tokenizer",
                    name, column.first_outside(index - from.first_row, limit_, also),
                    limit_ - 1));
  }

  SavedDataset dataset_;
  int64_t length_;
  int64_t limit_ = INT32_MAX;
};

}  // namespace

std::unique_ptr<TokenSource> saved_dataset_source(const fs::path& path, int64_t seq_len,
                                                  const std::string& field) {
  return std::make_unique<SavedDatasetSource>(open_saved_dataset(path, field), seq_len);
}

std::unique_ptr<TokenSource> saved_file_source(const fs::path& file, int64_t seq_len,
                                               const std::string& field) {
  return std::make_unique<SavedDatasetSource>(open_saved_files(file, {{file}, {}}, field),
                                              seq_len);
}

SavedRows saved_rows(const fs::path& path, const std::string& field) {
  const SavedDataset dataset = open_saved_dataset(path, field);
  return {dataset.rows, dataset.shortest, dataset.longest};
}

std::string describe_saved_dataset(const fs::path& path, const std::string& field) {
  const SavedDataset dataset = open_saved_dataset(path, field);
  const std::string lengths =
      dataset.shortest == dataset.longest
          ? fmt::format("of {} tokens", dataset.shortest)
          : fmt::format("of {} to {} tokens: training packs them into a token store",
                        dataset.shortest, dataset.longest);
  return fmt::format(
      "Hugging Face save_to_disk directory {}, complete\n"
      "rows            {}, {}\n"
      "files           {} with {}\n"
      "columns used    {}{}{}\n"
      "tokenizer       not recorded in this format\n",
      path.string(), grouped(dataset.rows), lengths, dataset.files.size(),
      human_bytes(dataset.bytes), dataset.field, dataset.has_labels ? ", labels" : "",
      dataset.has_mask ? ", attention_mask" : "");
}

}  // namespace longhaul::data
