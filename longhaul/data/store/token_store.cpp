#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ranges>
#include <string>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/data/store/token_store.h"
#include "longhaul/data/store/token_words.h"

namespace longhaul::data {
namespace {

template <typename Word>
Word word_from(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof(Word));
  return word;
}

template <typename Word>
Word word_at(const ProvedFile& file, int64_t index) {
  return word_from<Word>(
      file.at(static_cast<size_t>(index) * sizeof(Word), sizeof(Word)));
}

/// Returns the end of the last document without comparing the block with its hash, so
/// that opening a store reads no whole block.
uint64_t last_end(const ProvedFile& ends) {
  return word_from<uint64_t>(ends.unproved().last(sizeof(uint64_t)).data());
}

std::vector<std::string> names_of(const StoreShard& shard) {
  std::vector<std::string> names;
  for (const StoreFile& file : shard.files()) names.push_back(file.name);
  return names;
}

/// Returns the bytes of the two largest shards. A read across the border of two shards
/// holds both.
uint64_t two_largest(const StoreInfo& info) {
  uint64_t first = 0;
  uint64_t second = 0;
  for (const StoreShard& shard : info.shards) {
    uint64_t bytes = 0;
    for (const StoreFile& file : shard.files()) bytes += file.bytes;
    second = std::max(second, std::min(first, bytes));
    first = std::max(first, bytes);
  }
  return first + second;
}

}  // namespace

TokenStore::TokenStore(const fs::path& path, bool verify,
                       std::shared_ptr<const objects::Pieces> pieces)
    : path_(path),
      verify_(verify),
      pieces_(std::move(pieces)),
      info_(read_store_info(path, pieces_.get())) {
  if (pieces_) room_ = pieces_->reserve(two_largest(info_));
  int64_t tokens = 0;
  int64_t documents = 0;
  shards_.reserve(info_.shards.size());
  for (const StoreShard& from : info_.shards) {
    Shard shard;
    shard.first_token = tokens;
    shard.tokens = from.tokens;
    shard.first_document = documents;
    shard.documents = from.documents;
    if (!pieces_) shard.files = open(from);
    tokens += shard.tokens;
    documents += shard.documents;
    shards_.push_back(std::move(shard));
  }
}

std::shared_ptr<const TokenStore::Files> TokenStore::open(const StoreShard& from) const {
  const auto files = std::make_shared<Files>();
  if (pieces_) files->held = pieces_->hold(names_of(from));
  const fs::path& dir = pieces_ ? *files->held : path_;
  std::shared_ptr<const ShardHashes> hashes;
  if (verify_) hashes = std::make_shared<ShardHashes>(dir, from.hash_file);
  files->token_file = ProvedFile(dir, from.token_file, hashes);
  files->ends = ProvedFile(dir, from.document_file, hashes);
  if (from.target_file) files->targets = ProvedFile(dir, *from.target_file, hashes);
  if (from.text_file) files->texts = ProvedFile(dir, *from.text_file, hashes);
  if (from.record_file) files->records = ProvedFile(dir, *from.record_file, hashes);
  const uint64_t end = last_end(files->ends);
  if (end == static_cast<uint64_t>(from.tokens)) return files;
  fail_input("data",
             "{}: its last document ends at token {}, but the shard ends at {}; build "
             "the store again or copy it again",
             (dir / from.document_file.name).string(), end, from.tokens);
}

std::shared_ptr<const TokenStore::Files> TokenStore::files_of(const Shard& shard) const {
  if (!pieces_) return shard.files;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Files>& files = here_[&shard];
  if (!files) files = open(record_of(shard));
  return files;
}

void TokenStore::pass(int64_t token) const {
  if (!pieces_) return;
  const Shard& kept = shard_of(token, &Shard::first_token);
  const std::lock_guard lock(mutex_);
  std::erase_if(here_, [&](const auto& one) { return one.first != &kept; });
}

int64_t TokenStore::next_shard(int64_t token) const {
  const Shard& shard = shard_of(token, &Shard::first_token);
  return shard.first_token + shard.tokens;
}

void TokenStore::fetch_ahead(int64_t token) const {
  if (!pieces_) return;
  const Shard& shard = shard_of(token, &Shard::first_token);
  {
    const std::lock_guard lock(mutex_);
    if (here_.contains(&shard)) return;
  }
  pieces_->fetch_ahead(names_of(record_of(shard)));
}

const TokenStore::Shard& TokenStore::shard_of(int64_t number,
                                              int64_t Shard::* first) const {
  return *(std::ranges::upper_bound(shards_, number, {}, first) - 1);
}

template <typename Value, typename Copy>
void TokenStore::over_shards(int64_t begin, std::span<Value> out,
                             const Copy& copy) const {
  LH_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= info_.tokens, "data",
           "tokens [{}, {}) of {}", begin, begin + static_cast<int64_t>(out.size()),
           info_.tokens);
  while (!out.empty()) {
    const Shard& shard = shard_of(begin, &Shard::first_token);
    const int64_t inside = begin - shard.first_token;
    const auto part =
        out.first(std::min(out.size(), static_cast<size_t>(shard.tokens - inside)));
    copy(*files_of(shard), static_cast<size_t>(inside), part);
    begin += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
  }
}

void TokenStore::read(int64_t begin, std::span<int32_t> out) const {
  uint32_t largest = 0;
  over_shards(begin, out,
              [&](const Files& files, size_t inside, std::span<int32_t> part) {
                const auto size = static_cast<size_t>(info_.token_bytes);
                const std::byte* const from =
                    files.token_file.at(inside * size, part.size() * size);
                largest = std::max(largest, read_tokens(from, info_.token_bytes, part));
              });
  if (largest > static_cast<uint64_t>(info_.counts.max_token_id)) {
    fail_input("data",
               "{}: tokens [{}, {}) hold id {}, but store.json says that {} is the "
               "largest: the store is damaged; 'longhaul verify' finds the file",
               path_.string(), begin, begin + static_cast<int64_t>(out.size()), largest,
               info_.counts.max_token_id);
  }
}

void TokenStore::read_targets(int64_t begin, std::span<uint8_t> out) const {
  over_shards(begin, out, [](const Files& files, size_t inside, std::span<uint8_t> part) {
    if (files.targets.empty()) {
      std::ranges::fill(part, 1);
      return;
    }
    const size_t first = inside / 8;
    const std::byte* const bits =
        files.targets.at(first, (inside + part.size() + 7) / 8 - first);
    for (size_t i = 0; i < part.size(); ++i) {
      const size_t bit = inside + i;
      part[i] = static_cast<uint8_t>(
          (std::to_integer<unsigned>(bits[bit / 8 - first]) >> (bit % 8)) & 1U);
    }
  });
}

int64_t TokenStore::end_in_shard(const Shard& shard, const Files& files,
                                 int64_t document) {
  // A damaged end is limited to the shard's end, so that no reader reads beyond the
  // shard.
  return static_cast<int64_t>(std::min(word_at<uint64_t>(files.ends, document),
                                       static_cast<uint64_t>(shard.tokens)));
}

int64_t TokenStore::document_end(int64_t document) const {
  const Shard& shard = shard_of(document, &Shard::first_document);
  return shard.first_token +
         end_in_shard(shard, *files_of(shard), document - shard.first_document);
}

int64_t TokenStore::document_of(int64_t token) const {
  const Shard& shard = shard_of(token, &Shard::first_token);
  const auto files = files_of(shard);
  const int64_t inside = token - shard.first_token;
  const auto document = std::ranges::partition_point(
      std::views::iota(int64_t{0}, shard.documents - 1),
      [&](int64_t i) { return end_in_shard(shard, *files, i) <= inside; });
  return shard.first_document + *document;
}

std::optional<DocumentOrigin> TokenStore::origin_of(int64_t document) const {
  const Shard& shard = shard_of(document, &Shard::first_document);
  const auto files = files_of(shard);
  if (files->records.empty()) return std::nullopt;
  DocumentOrigin origin = DocumentOrigin::unpacked(
      word_at<uint64_t>(files->records, document - shard.first_document));
  if (origin.file >= std::ssize(info_.origins)) {
    fail_input("data",
               "{}: document {} was made from file {} of {}: the store is damaged; "
               "'longhaul verify' finds the file",
               path_.string(), document, origin.file, info_.origins.size());
  }
  const auto& before = record_of(shard).lines_before;
  if (const auto lines = before.find(origin.file); lines != before.end()) {
    origin.record += lines->second;
  }
  return origin;
}

TokenStore::Name TokenStore::name_of(int64_t document) const {
  if (const auto origin = origin_of(document)) {
    return {info_.origins[static_cast<size_t>(origin->file)].path, origin->record};
  }
  const Shard& shard = shard_of(document, &Shard::first_document);
  return {(path_ / record_of(shard).token_file.name).string(),
          document - shard.first_document};
}

DocumentPart TokenStore::part_of(int64_t document, int64_t offset, int64_t tokens) const {
  Name name = name_of(document);
  if (tokens < 0) tokens = document_end(document) - document_begin(document) - offset;
  return {.store = path_.string(),
          .document = document,
          .offset = offset,
          .tokens = tokens,
          .file = std::move(name.file),
          .record = name.record};
}

std::vector<int64_t> TokenStore::documents_named(const Name& name) const {
  std::vector<int64_t> found;
  const auto file = std::ranges::find(info_.origins, name.file, &StoreOrigin::path);
  const auto number = file - info_.origins.begin();
  for (const Shard& shard : shards_) {
    const StoreShard& record = record_of(shard);
    if (name.file == (path_ / record.token_file.name).string()) {
      if (name.record >= 0 && name.record < shard.documents) {
        found.push_back(shard.first_document + name.record);
      }
      continue;
    }
    if (file == info_.origins.end() || !record.record_file) continue;
    for (int64_t i = 0; i < shard.documents; ++i) {
      const auto origin = origin_of(shard.first_document + i);
      if (origin->file == number && origin->record == name.record) {
        found.push_back(shard.first_document + i);
      }
    }
  }
  return found;
}

uint64_t TokenStore::text_bytes(int64_t document) const {
  const Shard& shard = shard_of(document, &Shard::first_document);
  const auto files = files_of(shard);
  if (files->texts.empty()) return 0;
  return word_at<uint32_t>(files->texts, document - shard.first_document);
}

}  // namespace longhaul::data
