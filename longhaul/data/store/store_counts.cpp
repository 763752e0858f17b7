#include <algorithm>
#include <bit>
#include <utility>

#include "longhaul/base/hash.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {
namespace {

constexpr int kRecordBits = 36;
constexpr int kFileBits = 28;

}  // namespace

std::optional<uint64_t> DocumentOrigin::packed() const {
  const auto fits = [](int64_t number, int bits) {
    return number >= 0 && number < (int64_t{1} << bits);
  };
  if (!fits(file, kFileBits) || !fits(record, kRecordBits)) return std::nullopt;
  return (static_cast<uint64_t>(file) << kRecordBits) | static_cast<uint64_t>(record);
}

DocumentOrigin DocumentOrigin::unpacked(uint64_t packed) {
  const uint64_t record = packed & ((uint64_t{1} << kRecordBits) - 1);
  return {static_cast<int64_t>(packed >> kRecordBits), static_cast<int64_t>(record)};
}

StoreFile hashed_file(const fs::path& path) {
  const MappedFile file(path);
  BlockHasher hasher;
  hasher.update(file.bytes());
  return {path.filename().string(), file.bytes().size(), combine_hashes(hasher.finish())};
}

std::vector<StoreFile> StoreShard::files() const {
  std::vector<StoreFile> all = {token_file, document_file};
  if (target_file) all.push_back(*target_file);
  if (text_file) all.push_back(*text_file);
  if (record_file) all.push_back(*record_file);
  all.push_back(hash_file);
  return all;
}

std::vector<StoreFile> StoreInfo::side_files() const {
  std::vector<StoreFile> all;
  for (StoreFile file : tokenizer_files) {
    file.name.insert(0, "tokenizer/");
    all.push_back(std::move(file));
  }
  for (const auto& file : {self_test, bad_records}) {
    if (file) all.push_back(*file);
  }
  return all;
}

void LengthHistogram::add(int64_t tokens) {
  const auto width = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(tokens)));
  ++counts[std::min(width, counts.size()) - 1];
  shortest = shortest == 0 ? tokens : std::min(shortest, tokens);
  longest = std::max(longest, tokens);
}

void LengthHistogram::add(const LengthHistogram& other) {
  if (other.shortest == 0) return;
  for (size_t k = 0; k < counts.size(); ++k) counts[k] += other.counts[k];
  shortest = shortest == 0 ? other.shortest : std::min(shortest, other.shortest);
  longest = std::max(longest, other.longest);
}

void StoreCounts::add(const StoreCounts& other) {
  text_bytes += other.text_bytes;
  max_token_id = std::max(max_token_id, other.max_token_id);
  special_in_text += other.special_in_text;
  ready_documents += other.ready_documents;
  not_targets += other.not_targets;
  lengths.add(other.lengths);
}

void sum_up_shards(StoreInfo& info) {
  info.tokens = 0;
  info.documents = 0;
  info.counts.not_targets = 0;
  std::vector<std::string> parts = {std::to_string(info.token_bytes)};
  for (const StoreShard& shard : info.shards) {
    info.tokens += shard.tokens;
    info.documents += shard.documents;
    info.counts.not_targets += shard.not_targets;
    parts.push_back(shard.token_file.hash);
    parts.push_back(shard.document_file.hash);
    parts.push_back(shard.target_file ? shard.target_file->hash : "all");
  }
  info.fingerprint = combine_hashes(parts);
}

}  // namespace longhaul::data
