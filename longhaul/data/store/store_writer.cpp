#include "longhaul/data/store/store_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"

namespace longhaul::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "stores are little-endian and are written as memory holds them");

/// A file that is written front to back through a buffer and hashed on the way.
class HashedFile {
 public:
  HashedFile(const fs::path& dir, std::string name)
      : file_(File::create(dir / name)), name_(std::move(name)) {}

  void write(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    if (buffer_.size() >= kBufferBytes) flush();
  }
  /// Durable afterwards; the blocks' hashes go into `blocks` under the file's name.
  StoreFile finish(Json& blocks) {
    flush();
    file_.sync();
    file_.close();
    const std::vector<std::string> hashes = hasher_.finish();
    blocks[name_] = hashes;
    return {name_, bytes_, combine_hashes(hashes)};
  }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;
  void flush() {
    hasher_.update(buffer_);
    file_.write(std::span<const std::byte>(buffer_));
    bytes_ += buffer_.size();
    buffer_.clear();
  }
  File file_;
  std::string name_;
  BlockHasher hasher_;
  std::vector<std::byte> buffer_;
  uint64_t bytes_ = 0;
};

StoreFile describe_file(const fs::path& path) {
  const MappedFile file(path);
  BlockHasher hasher;
  hasher.update(file.bytes());
  return {path.filename().string(), file.bytes().size(), combine_hashes(hasher.finish())};
}

void check_place(const fs::path& out, bool replace) {
  if (!fs::exists(fs::symlink_status(out))) return;
  if (!is_token_store(out)) {
    throw InputError("data", fmt::format("{}: exists and is not a token store; choose "
                                         "another --out",
                                         out.string()));
  }
  if (!replace) {
    throw InputError("data", fmt::format("{}: a token store stands there already; choose "
                                         "another --out, or replace it with --force",
                                         out.string()));
  }
}

}  // namespace

struct StoreWriter::State {
  State(fs::path place, const Tokenizer& given, bool replaces, int64_t shard_tokens)
      : out(std::move(place)), replace(replaces), tokenizer(given) {
    info.vocab_size = tokenizer.vocab_size();
    info.dtype = info.vocab_size <= 65536 ? DType::U16 : DType::U32;
    info.tokens_per_shard = shard_tokens;
    info.tokenizer_fingerprint = tokenizer.fingerprint();
    if (!out.has_filename()) out = out.parent_path();  // a trailing slash
    check_place(out, replace);
    if (out.has_parent_path()) fs::create_directories(out.parent_path());
    temporary = out;
    temporary += fmt::format(".partial-{}", ::getpid());
    fs::create_directories(temporary);
    ends.emplace(temporary, "documents.bin");
  }
  ~State() {
    if (committed) return;
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  }

  template <typename Word>
  void write_tokens(std::span<const TokenId> tokens) {
    std::vector<Word> words(tokens.begin(), tokens.end());
    shard->write(std::as_bytes(std::span<const Word>(words)));
  }
  void end_shard() {
    if (shard) info.shards.push_back(shard->finish(blocks));
    shard.reset();
  }
  void add(std::span<const TokenId> tokens);
  void copy_tokenizer();

  fs::path out;
  bool replace;
  const Tokenizer& tokenizer;
  fs::path temporary;
  StoreInfo info;
  Json blocks = Json::object();
  std::optional<HashedFile> ends;
  std::optional<HashedFile> shard;
  int64_t in_shard = 0;
  bool finished = false;
  bool committed = false;
};

void StoreWriter::State::add(std::span<const TokenId> tokens) {
  while (!tokens.empty()) {
    if (shard && in_shard == info.tokens_per_shard) end_shard();
    if (!shard) {
      shard.emplace(temporary, fmt::format("tokens_{:05}.bin", info.shards.size()));
      in_shard = 0;
    }
    const auto part = tokens.first(
        std::min(tokens.size(), static_cast<size_t>(info.tokens_per_shard - in_shard)));
    if (info.dtype == DType::U16) {
      write_tokens<uint16_t>(part);
    } else {
      write_tokens<uint32_t>(part);
    }
    in_shard += static_cast<int64_t>(part.size());
    tokens = tokens.subspan(part.size());
  }
}

void StoreWriter::State::copy_tokenizer() {
  const fs::path dir = temporary / "tokenizer";
  fs::create_directories(dir);
  for (const fs::path& file : tokenizer.files()) {
    copy_file_durable(file, dir / file.filename());
    info.tokenizer_files.push_back(describe_file(dir / file.filename()));
  }
  sync_directory(dir);
}

StoreWriter::StoreWriter(fs::path out, const Tokenizer& tokenizer, bool replace,
                         int64_t tokens_per_shard)
    : state_(std::make_unique<State>(std::move(out), tokenizer, replace,
                                     tokens_per_shard)) {}
StoreWriter::~StoreWriter() = default;
StoreWriter::StoreWriter(StoreWriter&&) noexcept = default;

void StoreWriter::add(std::span<const TokenId> tokens, uint64_t text_bytes) {
  StoreInfo& info = state_->info;
  LH_CHECK(!tokens.empty(), "data", "a document without tokens");
  const TokenId largest = *std::max_element(tokens.begin(), tokens.end());
  LH_CHECK(largest < info.vocab_size, "data",
           "the tokenizer made id {}, its vocabulary ends at {}", largest,
           info.vocab_size);
  state_->add(tokens);
  info.max_token_id = std::max(info.max_token_id, static_cast<int64_t>(largest));
  info.tokens += static_cast<int64_t>(tokens.size());
  info.text_bytes += text_bytes;
  ++info.documents;
  const auto end = static_cast<uint64_t>(info.tokens);
  state_->ends->write(std::as_bytes(std::span(&end, 1)));
}

int64_t StoreWriter::tokens() const { return state_->info.tokens; }
int64_t StoreWriter::documents() const { return state_->info.documents; }
const fs::path& StoreWriter::out() const { return state_->out; }

void StoreWriter::finish(StoreInfo given) {
  State& state = *state_;
  StoreInfo& info = state.info;
  LH_CHECK(info.documents > 0, "data", "a store without documents");
  state.end_shard();
  info.document_ends = state.ends->finish(state.blocks);
  state.copy_tokenizer();
  HashedFile blocks(state.temporary, "block_hashes.json");
  const std::string text = state.blocks.dump() + "\n";
  blocks.write(std::as_bytes(std::span(text)));
  Json unused;
  info.block_hashes = blocks.finish(unused);

  info.special_tokens = std::move(given.special_tokens);
  info.selection = std::move(given.selection);
  info.origins = std::move(given.origins);
  info.dropped = std::move(given.dropped);
  info.special_tokens_in_text = given.special_tokens_in_text;
  std::vector<std::string> parts = {std::string(dtype_name(info.dtype)),
                                    info.document_ends.hash};
  for (const StoreFile& shard : info.shards) parts.push_back(shard.hash);
  info.fingerprint = combine_hashes(parts);
  write_text_atomic(state.temporary / "store.json", store_info_text(info));
  state.finished = true;
}

void StoreWriter::commit() {
  State& state = *state_;
  LH_CHECK(state.finished && !state.committed, "data", "commit of an unfinished store");
  check_place(state.out, state.replace);  // it may have come to be since
  fs::path old;
  if (fs::exists(state.out)) {
    old = state.out;
    old += fmt::format(".old-{}", ::getpid());
    fs::rename(state.out, old);
  }
  fs::rename(state.temporary, state.out);
  state.committed = true;
  sync_directory(state.out.has_parent_path() ? state.out.parent_path() : fs::path("."));
  if (!old.empty()) fs::remove_all(old);
}

}  // namespace longhaul::data
