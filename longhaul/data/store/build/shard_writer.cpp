#include "longhaul/data/store/build/shard_writer.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/process.h"
#include "longhaul/data/store/token_words.h"

namespace longhaul::data {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr std::string_view kTemporary = ".temporary";

}  // namespace

std::string temporary_suffix() {
  return fmt::format("{}-{}-{}", kTemporary, host_name(), ::getpid());
}

void ShardPiece::add(std::span<const tokenizer::TokenId> tokens,
                     std::span<const uint8_t> is_target, uint64_t text_bytes) {
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

struct HashedFile::State {
  fs::path dir;
  std::string name;
  fs::path temporary;
  File file;
  BlockHasher hasher;
  std::vector<std::byte> buffer;
  uint64_t bytes = 0;
  bool finished = false;

  void flush() {
    hasher.update(buffer);
    file.write(std::span<const std::byte>(buffer));
    // The device works while the next tokens are made: the sync at the end waits less.
    file.start_writeback(bytes, buffer.size());
    bytes += buffer.size();
    buffer.clear();
  }
};

HashedFile::HashedFile(const fs::path& dir, std::string name, std::string_view temporary)
    : state_(std::make_unique<State>()) {
  state_->dir = dir;
  state_->temporary = dir / (name + std::string(temporary));
  state_->name = std::move(name);
  state_->file = File::create(state_->temporary);
}
HashedFile::HashedFile(HashedFile&&) noexcept = default;
HashedFile::~HashedFile() {
  if (!state_ || state_->finished) return;
  std::error_code ignored;
  fs::remove(state_->temporary, ignored);
}

void HashedFile::write(std::span<const std::byte> bytes) {
  State& state = *state_;
  state.buffer.insert(state.buffer.end(), bytes.begin(), bytes.end());
  if (state.buffer.size() >= kBufferBytes) state.flush();
}

StoreFile HashedFile::finish(Json& blocks) {
  State& state = *state_;
  state.flush();
  state.file.sync();
  state.file.close();
  fs::rename(state.temporary, state.dir / state.name);
  state.finished = true;
  const std::vector<std::string> hashes = state.hasher.finish();
  blocks[state.name] = hashes;
  return {state.name, state.bytes, combine_hashes(hashes)};
}

struct ShardWriter::State {
  fs::path dir;
  int number = 0;
  int token_bytes = 0;
  std::string temporary = temporary_suffix();
  std::optional<HashedFile> token_file;
  std::optional<HashedFile> document_file;
  std::optional<HashedFile> text_file;
  std::optional<HashedFile> target_file;
  int64_t tokens = 0;
  int64_t documents = 0;
  uint8_t bits = 0;        // targets that make no whole byte yet
  int64_t in_targets = 0;  // tokens whose bits are in the file or in `bits`
  StoreCounts counts;

  void open(std::optional<HashedFile>& file, std::string_view name) {
    file.emplace(dir, fmt::format("{}_{:05}.bin", name, number), temporary);
  }
  void add_targets(std::span<const uint8_t> is_target);
  void fill_targets(int64_t end);
  void append_targets(const std::vector<uint8_t>& is_target, int64_t count);
  void append_documents(const std::vector<int64_t>& lengths,
                        const std::vector<uint32_t>& text_bytes);
};

void ShardWriter::State::add_targets(std::span<const uint8_t> is_target) {
  std::vector<std::byte> out;
  out.reserve(is_target.size() / 8 + 1);
  for (const uint8_t one : is_target) {
    bits = static_cast<uint8_t>(bits | (one << (in_targets % 8)));
    if (++in_targets % 8 == 0) {
      out.push_back(std::byte{bits});
      bits = 0;
    }
  }
  target_file->write(out);
}

void ShardWriter::State::fill_targets(int64_t end) {
  const std::vector<uint8_t> ones(size_t{1} << 16, 1);
  while (in_targets < end) {
    const auto most = static_cast<size_t>(end - in_targets);
    add_targets(std::span(ones).first(std::min(most, ones.size())));
  }
}

void ShardWriter::State::append_targets(const std::vector<uint8_t>& is_target,
                                        int64_t count) {
  if (is_target.empty() && !target_file) return;
  if (!target_file) open(target_file, "targets");
  fill_targets(tokens);
  if (is_target.empty()) {
    fill_targets(tokens + count);
  } else {
    add_targets(is_target);
  }
}

void ShardWriter::State::append_documents(const std::vector<int64_t>& lengths,
                                          const std::vector<uint32_t>& text_bytes) {
  std::vector<uint64_t> ends;
  ends.reserve(lengths.size());
  auto end = static_cast<uint64_t>(tokens);
  for (const int64_t length : lengths) {
    end += static_cast<uint64_t>(length);
    ends.push_back(end);
  }
  document_file->write(std::as_bytes(std::span(ends)));
  text_file->write(std::as_bytes(std::span(text_bytes)));
}

ShardWriter::ShardWriter(fs::path dir, int number, int token_bytes)
    : state_(std::make_unique<State>()) {
  state_->dir = std::move(dir);
  state_->number = number;
  state_->token_bytes = token_bytes;
}
ShardWriter::~ShardWriter() = default;

void ShardWriter::append(const ShardPiece& piece) {
  State& state = *state_;
  LH_CHECK(piece.token_bytes_ == state.token_bytes, "data",
           "tokens of {} bytes in a shard of {}", piece.token_bytes_, state.token_bytes);
  if (piece.lengths_.empty()) return;
  if (!state.token_file) {
    state.open(state.token_file, "tokens");
    state.open(state.document_file, "documents");
    state.open(state.text_file, "texts");
  }
  state.token_file->write(piece.words_);
  state.append_targets(piece.is_target_, piece.tokens_);
  state.append_documents(piece.lengths_, piece.text_bytes_);
  state.tokens += piece.tokens_;
  state.documents += static_cast<int64_t>(piece.lengths_.size());
  state.counts.add(piece.counts_);
}

const StoreCounts& ShardWriter::counts() const { return state_->counts; }
int64_t ShardWriter::tokens() const { return state_->tokens; }

std::optional<StoreShard> ShardWriter::finish() {
  State& state = *state_;
  if (!state.token_file) return std::nullopt;
  StoreShard shard;
  shard.tokens = state.tokens;
  shard.documents = state.documents;
  shard.not_targets = state.counts.not_targets;
  Json blocks = Json::object();
  shard.token_file = state.token_file->finish(blocks);
  shard.document_file = state.document_file->finish(blocks);
  if (state.counts.text_bytes > 0) shard.text_file = state.text_file->finish(blocks);
  state.text_file.reset();
  if (state.target_file) {
    state.fill_targets(state.tokens);
    if (state.in_targets % 8 != 0) {
      const std::byte last{state.bits};
      state.target_file->write(std::span(&last, 1));
    }
    shard.target_file = state.target_file->finish(blocks);
  }
  HashedFile hashes(state.dir, fmt::format("hashes_{:05}.json", state.number),
                    state.temporary);
  const std::string text = json_text(blocks) + "\n";
  hashes.write(std::as_bytes(std::span(text)));
  Json unused;
  shard.hash_file = hashes.finish(unused);
  return shard;
}

void ShardWriter::remove_leavings(const fs::path& dir, bool all) {
  std::error_code ignored;
  const std::string mine = fmt::format("{}-{}-", kTemporary, host_name());
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename().string();
    const size_t at = name.find(kTemporary);
    if (at == std::string::npos) continue;
    const size_t process = name.find(mine);
    const bool gone = process != std::string::npos &&
                      ::kill(std::atoi(name.c_str() + process + mine.size()), 0) != 0 &&
                      errno == ESRCH;
    if (all || gone) fs::remove(entry.path(), ignored);
  }
}

}  // namespace longhaul::data
