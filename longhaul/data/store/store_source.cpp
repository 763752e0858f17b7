#include "longhaul/data/store/store_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

class StoreSource final : public TokenSource {
 public:
  StoreSource(const fs::path& path, int64_t length, bool document_mask, bool verify,
              std::shared_ptr<const objects::Pieces> pieces)
      : store_(path, verify, std::move(pieces)),
        length_(length),
        document_mask_(document_mask) {
    LH_CHECK(length > 0, "data", "sequences of {} tokens", length);
    if (store_.info().kind == "pairs") {
      fail_input(
          "data",
          "{}: it holds pairs of a chosen and a rejected answer, which a stream of "
          "tokens tears apart; train on them with data.pack = \"whole\" and "
          "preference.loss",
          path.string());
    }
    // The last target of a sequence is the first token of the next sequence.
    sequences_ = (store_.info().tokens - 1) / length;
    if (sequences_ < 1) {
      fail_input("data",
                 "{}: {} tokens are too few for one sequence of {} tokens and a target; "
                 "choose a smaller data.seq_len or more text",
                 path.string(), store_.info().tokens, length);
    }
  }

  int64_t num_sequences() const override { return sequences_; }
  int64_t seq_len() const override { return length_; }
  int64_t max_token_id() const override { return store_.info().counts.max_token_id + 1; }
  std::string fingerprint() const override { return store_.info().fingerprint; }
  std::string tokenizer_fingerprint() const override {
    return store_.info().tokenizer_fingerprint;
  }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    const int64_t begin = index * length_;
    store_.pass(begin);
    store_.read(begin, to.tokens);
    std::copy(to.tokens.begin() + 1, to.tokens.end(), to.targets.begin());
    store_.read(begin + length_, to.targets.last(1));
    if (!store_.all_targets()) ignore_no_targets(begin + 1, to);
    fill_plain_positions(to);
    if (document_mask_) mark_documents(begin, to);
  }

  std::vector<DocumentPart> documents(int64_t index) const override {
    std::vector<DocumentPart> parts;
    const int64_t begin = index * length_;
    int64_t document = store_.document_of(begin);
    const int64_t documents = store_.info().documents;
    for (int64_t at = begin; at < begin + length_ && document < documents; ++document) {
      const int64_t end = std::min(store_.document_end(document), begin + length_);
      if (end > at) {
        parts.push_back(
            store_.part_of(document, at - store_.document_begin(document), end - at));
        parts.back().begin = at - begin;
      }
      at = std::max(at, end);
    }
    return parts;
  }
  std::vector<int64_t> sequences_with(const DocumentPart& part) const override {
    std::vector<int64_t> found;
    if (part.store != store_.path().string() || part.tokens < 1) return found;
    const int64_t first = store_.document_begin(part.document) + part.offset;
    const int64_t last =
        std::min(first + part.tokens, store_.document_end(part.document)) - 1;
    for (int64_t i = first / length_; i <= last / length_ && i < sequences_; ++i) {
      found.push_back(i);
    }
    return found;
  }
  std::vector<DocumentPart> documents_named(const std::string& file,
                                            int64_t record) const override {
    std::vector<DocumentPart> found;
    for (const int64_t document : store_.documents_named({file, record})) {
      found.push_back(store_.part_of(document, 0, -1));
    }
    return found;
  }

  int64_t next_piece(int64_t index) const override {
    if (!store_.in_pieces()) return sequences_;
    const int64_t next = store_.next_shard(index * length_);
    return std::min(sequences_, (next + length_ - 1) / length_);
  }
  void fetch_ahead(int64_t index) const override { store_.fetch_ahead(index * length_); }

  std::string describe() const override {
    const int64_t cut = store_.info().tokens - 1 - sequences_ * length_;
    return fmt::format(
        "token store {}: {}, {}, {} of {}{}{}; {} left over at the end",
        store_.path().string(), counted(store_.info().documents, "document"),
        counted(store_.info().tokens, "token"), counted(sequences_, "sequence"), length_,
        document_mask_ ? " masked by document" : "",
        store_.in_pieces() ? ", shard by shard" : "", counted(cut, "token"));
  }

 private:
  void ignore_no_targets(int64_t begin, const BatchRow& to) const {
    std::vector<uint8_t> is_target(static_cast<size_t>(length_));
    store_.read_targets(begin, is_target);
    for (size_t i = 0; i < is_target.size(); ++i) {
      if (is_target[i] == 0) to.targets[i] = kIgnore;
    }
  }

  void mark_documents(int64_t begin, const BatchRow& to) const {
    int64_t document = store_.document_of(begin);
    for (int64_t start = 0; start < length_; ++document) {
      const int64_t last = document >= store_.info().documents
                               ? length_
                               : std::min(length_, store_.document_end(document) - begin);
      for (int64_t i = start; i < last; ++i) {
        to.document_start[static_cast<size_t>(i)] = static_cast<int32_t>(start);
        to.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i - start);
      }
      start = std::max(start, last);
    }
  }

  TokenStore store_;
  int64_t length_;
  bool document_mask_;
  int64_t sequences_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> store_source(const fs::path& path, int64_t seq_len,
                                          bool document_mask, bool verify,
                                          std::shared_ptr<const objects::Pieces> pieces) {
  return std::make_unique<StoreSource>(path, seq_len, document_mask, verify,
                                       std::move(pieces));
}

}  // namespace longhaul::data
