#include "longhaul/data/store/store_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/sources/rows.h"

namespace longhaul::data {
namespace {

static_assert(std::endian::native == std::endian::little, "stores are little-endian");

/// Copies words of type Word; returns the largest.
template <typename Word>
uint32_t copy_words(const std::byte* from, std::span<int32_t> out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    Word word;
    std::memcpy(&word, from + i * sizeof(Word), sizeof(Word));
    largest = std::max(largest, static_cast<uint32_t>(word));
    out[i] = static_cast<int32_t>(word);
  }
  return largest;
}

class StoreSource final : public TokenSource {
 public:
  StoreSource(const fs::path& path, int64_t length, bool document_mask)
      : store_(path), length_(length), document_mask_(document_mask) {
    LH_CHECK(length > 0, "data", "sequences of {} tokens", length);
    // The last token of a sequence is the first of the next one.
    sequences_ = (store_.info().tokens - 1) / length;
    if (sequences_ < 1) {
      throw InputError("data",
                       fmt::format("{}: {} tokens make no sequence of {} tokens and a "
                                   "target; choose a smaller data.seq_len or more text",
                                   path.string(), store_.info().tokens, length));
    }
  }

  int64_t num_sequences() const override { return sequences_; }
  int64_t seq_len() const override { return length_; }
  int64_t max_token_id() const override { return store_.info().max_token_id + 1; }
  std::string fingerprint() const override { return store_.info().fingerprint; }
  std::string tokenizer_fingerprint() const override {
    return store_.info().tokenizer_fingerprint;
  }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    const int64_t begin = index * length_;
    store_.read(begin, to.tokens);
    std::copy(to.tokens.begin() + 1, to.tokens.end(), to.targets.begin());
    store_.read(begin + length_, to.targets.last(1));
    fill_plain_positions(to);
    if (document_mask_) mark_documents(begin, to);
  }

  std::string describe() const override {
    const int64_t cut = store_.info().tokens - 1 - sequences_ * length_;
    return fmt::format(
        "token store {}: {} documents, {} tokens, {} sequences of {}{}; {} tokens at the "
        "end "
        "make no whole sequence",
        store_.path().string(), grouped(store_.info().documents),
        grouped(store_.info().tokens), grouped(sequences_), length_,
        document_mask_ ? " masked by document" : "", grouped(cut));
  }

 private:
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

TokenStore::TokenStore(const fs::path& path) : path_(path), info_(read_store_info(path)) {
  for (const StoreFile& shard : info_.shards) {
    shards_.emplace_back(join_inside(path, shard.name, "data"));
    LH_CHECK(shards_.back().bytes().size() == shard.bytes, "data", "{} changed its size",
             shard.name);
  }
  ends_ = MappedFile(join_inside(path, info_.document_ends.name, "data"));
  LH_CHECK(ends_.bytes().size() == info_.document_ends.bytes, "data",
           "the document ends changed their size");
  if (document_end(info_.documents - 1) != info_.tokens) {
    throw InputError("data",
                     fmt::format("{}: its last document ends at token {}, the store "
                                 "at {}; build the store again or copy it again",
                                 (path / info_.document_ends.name).string(),
                                 document_end(info_.documents - 1), info_.tokens));
  }
}

void TokenStore::read(int64_t begin, std::span<int32_t> out) const {
  LH_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= info_.tokens, "data",
           "tokens [{}, {}) of {}", begin, begin + static_cast<int64_t>(out.size()),
           info_.tokens);
  uint32_t largest = 0;
  int64_t at = begin;
  while (!out.empty()) {
    const int64_t inside = at % info_.tokens_per_shard;
    const MappedFile& shard = shards_[static_cast<size_t>(at / info_.tokens_per_shard)];
    const auto part = out.first(
        std::min(out.size(), static_cast<size_t>(info_.tokens_per_shard - inside)));
    const std::byte* from =
        shard.bytes().data() + static_cast<size_t>(inside) * dtype_size(info_.dtype);
    largest =
        std::max(largest, info_.dtype == DType::U16 ? copy_words<uint16_t>(from, part)
                                                    : copy_words<uint32_t>(from, part));
    at += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
  }
  if (largest > static_cast<uint64_t>(info_.max_token_id)) {
    throw InputError("data",
                     fmt::format("{}: tokens [{}, {}) hold id {}, but store.json "
                                 "says that {} is the largest: the store is damaged; "
                                 "'longhaul verify' finds the file",
                                 path_.string(), begin, at, largest, info_.max_token_id));
  }
}

int64_t TokenStore::document_end(int64_t document) const {
  uint64_t end = 0;
  std::memcpy(&end, ends_.bytes().data() + static_cast<size_t>(document) * sizeof(end),
              sizeof(end));
  // A damaged place is at most the store's end: no reader runs past it.
  return static_cast<int64_t>(std::min(end, static_cast<uint64_t>(info_.tokens)));
}

int64_t TokenStore::document_of(int64_t token) const {
  int64_t low = 0;
  int64_t high = info_.documents - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (document_end(middle) > token) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

std::unique_ptr<TokenSource> store_source(const fs::path& path, int64_t seq_len,
                                          bool document_mask) {
  return std::make_unique<StoreSource>(path, seq_len, document_mask);
}

}  // namespace longhaul::data
