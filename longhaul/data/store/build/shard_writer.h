#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/hash.h"
#include "longhaul/data/store/store.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// One value for each of the two stores that a holdout or a split makes.
template <typename Value>
struct Sides {
  Value train;
  Value validation;
};

/// The result of one part of the input on one side of a holdout or a split.
struct ShardSide {
  std::optional<StoreShard> shard;  ///< empty when the part has no documents
  StoreCounts counts;
  /// Adds the shard and its counts to a store.
  void add_to(StoreInfo& store) const;
};

/// Documents in the form in which a shard holds them. Workers make shard pieces, and a
/// ShardWriter appends the pieces to a shard.
class ShardPiece {
 public:
  explicit ShardPiece(int token_bytes) : token_bytes_(token_bytes) {}

  /// Adds one document of at least one token, special tokens included. `is_target` has a
  /// 0 or 1 for each token; when it is empty, all tokens are targets. `text_bytes` is 0
  /// for a document that came as token ids. A shard of which a document has no `origin`
  /// has no file of records.
  void add(std::span<const tokenizer::TokenId> tokens, std::span<const uint8_t> is_target,
           uint64_t text_bytes, const std::optional<DocumentOrigin>& origin = {});
  StoreCounts& counts() { return counts_; }

 private:
  friend class ShardWriter;
  int token_bytes_;
  std::vector<std::byte> words_;
  std::vector<int64_t> lengths_;
  std::vector<uint32_t> text_bytes_;
  std::vector<uint64_t> records_;   // one for each document, up to the first without
  std::vector<uint8_t> is_target_;  // one for each token, or empty: all are targets
  int64_t tokens_ = 0;
  StoreCounts counts_;
};

/// A file that is written front to back under a temporary name and hashed on the way. The
/// destructor removes a file that was not finished.
class HashedFile {
 public:
  HashedFile(const fs::path& dir, std::string name);
  ~HashedFile();
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;
  void write(std::span<const std::byte> bytes);
  /// Makes the file durable under its final name. The hashes of its blocks go into
  /// `blocks` under this name. The directory is not synced.
  StoreFile finish(Json& blocks);

 private:
  void flush();
  fs::path path_;
  fs::path temporary_;
  File file_;
  BlockHasher hasher_;
  std::vector<std::byte> buffer_;
  uint64_t bytes_ = 0;
  bool finished_ = false;
};

/// Writes the file `name` that lists the hashes of the blocks of other files.
StoreFile write_hash_file(const fs::path& dir, const std::string& name,
                          const Json& blocks);

/// Writes the files of one shard. Not thread-safe.
class ShardWriter {
 public:
  /// Writes into `dir`, which exists. No file is made before the first document.
  ShardWriter(fs::path dir, int number, int token_bytes)
      : dir_(std::move(dir)), number_(number), token_bytes_(token_bytes) {}

  void append(const ShardPiece& piece);
  /// Makes all files durable under their final names. The directory is not synced.
  ShardSide finish();

 private:
  void open(std::optional<HashedFile>& file, std::string_view name) const;
  void add_targets(std::span<const uint8_t> is_target);
  /// Marks the tokens up to `end` as targets.
  void fill_targets(int64_t end);
  void append_targets(const ShardPiece& piece);
  void append_documents(const ShardPiece& piece);

  fs::path dir_;
  int number_;
  int token_bytes_;
  std::optional<HashedFile> token_file_;
  std::optional<HashedFile> document_file_;
  std::optional<HashedFile> text_file_;
  std::optional<HashedFile> record_file_;
  std::optional<HashedFile> target_file_;
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
  bool all_records_ = true;  // every document so far has its record
  uint8_t bits_ = 0;         // bits of targets that do not fill a byte yet
  int64_t in_targets_ = 0;   // tokens whose bits are in the file or in bits_
  StoreCounts counts_;
};

}  // namespace longhaul::data
