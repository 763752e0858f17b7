#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {
namespace {

class ConcatenatedSource final : public TokenSource {
 public:
  explicit ConcatenatedSource(std::vector<std::unique_ptr<TokenSource>> parts)
      : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      LH_CHECK(part->seq_len() == parts_.front()->seq_len(), "data",
               "sequences of {} and of {} tokens in one source", part->seq_len(),
               parts_.front()->seq_len());
      check_losses(*part);
      firsts_.push_back(sequences_);
      first_pairs_.push_back(pairs_);
      pairs_ += part->num_pairs();
      sequences_ += part->num_sequences();
    }
  }

  int64_t num_sequences() const override { return sequences_; }
  int64_t num_pairs() const override { return pairs_; }
  int64_t seq_len() const override { return parts_.front()->seq_len(); }
  std::vector<std::string> losses() const override { return parts_.front()->losses(); }
  void keep_losses(const std::vector<std::string>& wanted) override {
    for (const auto& part : parts_) part->keep_losses(wanted);
  }
  void shape(TokenBatch& batch, int64_t rows) const override {
    parts_.front()->shape(batch, rows);
  }
  int64_t max_token_id() const override {
    int64_t largest = 0;
    for (const auto& part : parts_) {
      if (part->max_token_id() == 0) return 0;
      largest = std::max(largest, part->max_token_id());
    }
    return largest;
  }
  void limit_ids(int64_t vocab_size) override {
    for (const auto& part : parts_) part->limit_ids(vocab_size);
  }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    LH_CHECK(index >= 0 && index < sequences_, "data", "sequence {} of {}", index,
             sequences_);
    const size_t part = part_of(index);
    parts_[part]->read(index - firsts_[part], batch, row);
    if (batch.pairs.empty()) return;
    for (Pair& pair : batch.pairs[static_cast<size_t>(row)]) {
      pair.number += first_pairs_[part];
    }
  }
  std::vector<DocumentPart> documents(int64_t index) const override {
    const size_t part = part_of(index);
    auto found = parts_[part]->documents(index - firsts_[part]);
    for (DocumentPart& one : found) {
      if (one.store.empty()) one.document = one.record = index;
    }
    return found;
  }
  std::vector<int64_t> sequences_with(const DocumentPart& of) const override {
    if (of.store.empty()) return TokenSource::sequences_with(of);
    std::vector<int64_t> found;
    for (size_t part = 0; part < parts_.size(); ++part) {
      for (const int64_t index : parts_[part]->sequences_with(of)) {
        found.push_back(firsts_[part] + index);
      }
    }
    return found;
  }
  std::vector<DocumentPart> documents_named(const std::string& file,
                                            int64_t record) const override {
    std::vector<DocumentPart> found;
    for (const auto& part : parts_) {
      for (DocumentPart& one : part->documents_named(file, record)) {
        found.push_back(std::move(one));
      }
    }
    return found;
  }
  int64_t next_piece(int64_t index) const override {
    const size_t part = part_of(index);
    return firsts_[part] + parts_[part]->next_piece(index - firsts_[part]);
  }
  void fetch_ahead(int64_t index) const override {
    const size_t part = part_of(index);
    parts_[part]->fetch_ahead(index - firsts_[part]);
  }

  void check_rows(const std::atomic<bool>& stop) const override {
    for (const auto& part : parts_) part->check_rows(stop);
  }

  std::string describe() const override {
    std::string text =
        fmt::format("{} sources as one, {} sequences of {}:", parts_.size(),
                    grouped(sequences_), seq_len());
    for (size_t i = 0; i < parts_.size() && i < kNamed; ++i) {
      text += (i == 0 ? " " : "; ") + parts_[i]->describe();
    }
    if (parts_.size() > kNamed)
      text += fmt::format("; and {} more", parts_.size() - kNamed);
    return text;
  }
  std::string fingerprint() const override {
    std::string all;
    for (const auto& part : parts_) all += part->fingerprint() + "\n";
    return hash_hex(all);
  }
  /// Returns the fingerprint that all parts share. Throws InputError when parts differ.
  std::string tokenizer_fingerprint() const override {
    std::string known;
    for (const auto& part : parts_) {
      const std::string own = part->tokenizer_fingerprint();
      if (own.empty()) continue;
      if (!known.empty() && known != own) {
        fail_input("data",
                   "{}: made with another tokenizer (fingerprint {}) than the sources "
                   "before it in the list ({}); use sources of one tokenizer",
                   part->describe(), own, known);
      }
      known = own;
    }
    return known;
  }

 private:
  size_t part_of(int64_t index) const {
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), index);
    return static_cast<size_t>(after - firsts_.begin()) - 1;
  }
  void check_losses(const TokenSource& part) const {
    if (part.losses() == losses()) return;
    fail_input("data",
               "{} has targets for {}, but {} in the same list has targets for {}; give "
               "each kind an entry of its own",
               part.describe(), fmt::join(part.losses(), " and "),
               parts_.front()->describe(), fmt::join(losses(), " and "));
  }

  /// The number of parts that logs name.
  static constexpr size_t kNamed = 8;
  std::vector<std::unique_ptr<TokenSource>> parts_;
  std::vector<int64_t> firsts_;       ///< by part: its first sequence
  std::vector<int64_t> first_pairs_;  ///< by part: its first pair
  int64_t sequences_ = 0;
  int64_t pairs_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> concatenated_source(
    std::vector<std::unique_ptr<TokenSource>> parts) {
  LH_CHECK(!parts.empty(), "data", "a source of no parts");
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<ConcatenatedSource>(std::move(parts));
}

}  // namespace longhaul::data
