#include "longhaul/data/store/build/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/data/store/resumable_build.h"
#include "longhaul/data/store/token_words.h"

namespace longhaul::data {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

void ShardSide::add_to(StoreInfo& store) const {
  if (shard) store.shards.push_back(*shard);
  store.counts.add(counts);
}

void ShardPiece::add(std::span<const tokenizer::TokenId> tokens,
                     std::span<const uint8_t> is_target, uint64_t text_bytes,
                     const std::optional<DocumentOrigin>& origin) {
  LH_CHECK(!tokens.empty(), "data", "a document without tokens");
  LH_CHECK(is_target.empty() || is_target.size() == tokens.size(), "data",
           "{} tokens, {} of them marked", tokens.size(), is_target.size());
  LH_CHECK(text_bytes <= UINT32_MAX, "data", "a text of {} bytes", text_bytes);
  append_tokens(tokens, token_bytes_, words_);
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t no_targets = std::count(is_target.begin(), is_target.end(), 0);
  if (no_targets > 0 || !is_target_.empty()) {
    is_target_.resize(static_cast<size_t>(tokens_), 1);
    if (is_target.empty()) {
      is_target_.resize(static_cast<size_t>(tokens_ + count), 1);
    } else {
      is_target_.insert(is_target_.end(), is_target.begin(), is_target.end());
    }
  }
  tokens_ += count;
  const std::optional<uint64_t> record = origin ? origin->packed() : std::nullopt;
  if (record && records_.size() == lengths_.size()) records_.push_back(*record);
  lengths_.push_back(count);
  text_bytes_.push_back(static_cast<uint32_t>(text_bytes));
  counts_.not_targets += no_targets;
  counts_.text_bytes += text_bytes;
  if (text_bytes == 0) ++counts_.ready_documents;
  counts_.max_token_id =
      std::max(counts_.max_token_id,
               static_cast<int64_t>(*std::max_element(tokens.begin(), tokens.end())));
  counts_.lengths.add(count);
}

HashedFile::HashedFile(const fs::path& dir, std::string name)
    : path_(dir / name),
      temporary_(dir / (std::move(name) + temporary_suffix())),
      file_(File::create(temporary_)) {}

HashedFile::~HashedFile() {
  if (!finished_) try_remove(temporary_);
}

void HashedFile::flush() {
  hasher_.update(buffer_);
  file_.write(std::span<const std::byte>(buffer_));
  // The disk writes while the next tokens are made, so that the sync at the end is
  // shorter.
  file_.start_writeback(bytes_, buffer_.size());
  bytes_ += buffer_.size();
  buffer_.clear();
}

void HashedFile::write(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kBufferBytes) flush();
}

StoreFile HashedFile::finish(Json& blocks) {
  flush();
  file_.sync();
  file_.close();
  fs::rename(temporary_, path_);
  finished_ = true;
  const std::vector<std::string> hashes = hasher_.finish();
  const std::string name = path_.filename().string();
  blocks[name] = hashes;
  return {name, bytes_, combine_hashes(hashes)};
}

StoreFile write_hash_file(const fs::path& dir, const std::string& name,
                          const Json& blocks) {
  HashedFile file(dir, name);
  const std::string text = json_text(blocks) + "\n";
  file.write(std::as_bytes(std::span(text)));
  Json unused;
  return file.finish(unused);
}

void ShardWriter::open(std::optional<HashedFile>& file, std::string_view name) const {
  file.emplace(dir_, fmt::format("{}_{:05}.bin", name, number_));
}

void ShardWriter::add_targets(std::span<const uint8_t> is_target) {
  std::vector<std::byte> out;
  out.reserve(is_target.size() / 8 + 1);
  for (const uint8_t one : is_target) {
    bits_ = static_cast<uint8_t>(bits_ | (one << (in_targets_ % 8)));
    if (++in_targets_ % 8 == 0) {
      out.push_back(std::byte{bits_});
      bits_ = 0;
    }
  }
  target_file_->write(out);
}

void ShardWriter::fill_targets(int64_t end) {
  const std::vector<uint8_t> ones(size_t{1} << 16, 1);
  while (in_targets_ < end) {
    const auto most = static_cast<size_t>(end - in_targets_);
    add_targets(std::span(ones).first(std::min(most, ones.size())));
  }
}

void ShardWriter::append_targets(const ShardPiece& piece) {
  if (piece.is_target_.empty() && !target_file_) return;
  if (!target_file_) open(target_file_, "targets");
  fill_targets(tokens_);
  add_targets(piece.is_target_);
  fill_targets(tokens_ + piece.tokens_);
}

void ShardWriter::append_documents(const ShardPiece& piece) {
  std::vector<uint64_t> ends;
  ends.reserve(piece.lengths_.size());
  auto end = static_cast<uint64_t>(tokens_);
  for (const int64_t length : piece.lengths_) {
    end += static_cast<uint64_t>(length);
    ends.push_back(end);
  }
  document_file_->write(std::as_bytes(std::span(ends)));
  text_file_->write(std::as_bytes(std::span(piece.text_bytes_)));
  record_file_->write(std::as_bytes(std::span(piece.records_)));
  all_records_ = all_records_ && piece.records_.size() == piece.lengths_.size();
}

void ShardWriter::append(const ShardPiece& piece) {
  LH_CHECK(piece.token_bytes_ == token_bytes_, "data",
           "tokens of {} bytes in a shard of {}", piece.token_bytes_, token_bytes_);
  if (piece.lengths_.empty()) return;
  if (!token_file_) {
    open(token_file_, "tokens");
    open(document_file_, "documents");
    open(text_file_, "texts");
    open(record_file_, "records");
  }
  token_file_->write(piece.words_);
  append_targets(piece);
  append_documents(piece);
  tokens_ += piece.tokens_;
  documents_ += static_cast<int64_t>(piece.lengths_.size());
  counts_.add(piece.counts_);
}

ShardSide ShardWriter::finish() {
  if (!token_file_) return {};
  StoreShard shard;
  shard.tokens = tokens_;
  shard.documents = documents_;
  shard.not_targets = counts_.not_targets;
  Json blocks = Json::object();
  shard.token_file = token_file_->finish(blocks);
  shard.document_file = document_file_->finish(blocks);
  if (counts_.text_bytes > 0) shard.text_file = text_file_->finish(blocks);
  text_file_.reset();
  if (all_records_) shard.record_file = record_file_->finish(blocks);
  record_file_.reset();
  if (target_file_) {
    fill_targets(tokens_);
    if (in_targets_ % 8 != 0) {
      const std::byte last{bits_};
      target_file_->write(std::span(&last, 1));
    }
    shard.target_file = target_file_->finish(blocks);
  }
  shard.hash_file =
      write_hash_file(dir_, fmt::format("hashes_{:05}.json", number_), blocks);
  return {std::move(shard), counts_};
}

}  // namespace longhaul::data
