#pragma once

#include <memory>
#include <vector>

#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// A source of pairs to whose pairs a reference's sums of log-probabilities are added.
/// Any thread may read, but not while set_sums() runs.
class ReferencedSource final : public TokenSource {
 public:
  explicit ReferencedSource(std::shared_ptr<const TokenSource> pairs);

  /// Sets the sums: those of pair i, chosen and rejected side, are elements 2 i and
  /// 2 i + 1. Until then they are zeros.
  void set_sums(std::vector<double> sums);

  int64_t num_sequences() const override { return inner_->num_sequences(); }
  int64_t seq_len() const override { return inner_->seq_len(); }
  std::vector<std::string> losses() const override { return inner_->losses(); }
  int64_t num_pairs() const override { return inner_->num_pairs(); }
  int64_t max_token_id() const override { return inner_->max_token_id(); }
  void shape(TokenBatch& batch, int64_t rows) const override {
    inner_->shape(batch, rows);
  }
  void read(int64_t index, TokenBatch& batch, int64_t row) const override;
  std::vector<DocumentPart> documents(int64_t index) const override {
    return inner_->documents(index);
  }
  std::vector<int64_t> sequences_with(const DocumentPart& part) const override {
    return inner_->sequences_with(part);
  }
  std::vector<DocumentPart> documents_named(const std::string& file,
                                            int64_t record) const override {
    return inner_->documents_named(file, record);
  }
  int64_t next_piece(int64_t index) const override { return inner_->next_piece(index); }
  void fetch_ahead(int64_t index) const override { inner_->fetch_ahead(index); }
  void check_rows(const std::atomic<bool>& stop) const override {
    inner_->check_rows(stop);
  }
  std::string describe() const override { return inner_->describe(); }
  std::string fingerprint() const override { return inner_->fingerprint(); }
  std::string tokenizer_fingerprint() const override {
    return inner_->tokenizer_fingerprint();
  }

 private:
  std::shared_ptr<const TokenSource> inner_;
  std::vector<double> sums_;  ///< empty until they are set
};

}  // namespace longhaul::data
