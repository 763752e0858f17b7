#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/data/store/store.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Documents as they lie in a shard: what a worker makes and a ShardWriter appends.
class ShardPiece {
 public:
  explicit ShardPiece(int token_bytes) : token_bytes_(token_bytes) {}

  /// One document, special tokens included; at least one token. `is_target`: a 0 or 1 per
  /// token, or empty: all are. `text_bytes` is 0 for ready ids.
  void add(std::span<const tokenizer::TokenId> tokens, std::span<const uint8_t> is_target,
           uint64_t text_bytes);
  StoreCounts& counts() { return counts_; }
  const StoreCounts& counts() const { return counts_; }

 private:
  friend class ShardWriter;
  int token_bytes_;
  std::vector<std::byte> words_;
  std::vector<int64_t> lengths_;
  std::vector<uint32_t> text_bytes_;
  std::vector<uint8_t> is_target_;  // one per token, or empty: all are
  int64_t tokens_ = 0;
  StoreCounts counts_;
};

/// Writes the files of one shard under temporary names. Not thread-safe.
class ShardWriter {
 public:
  /// In `dir`, which exists. Nothing is made before the first document.
  ShardWriter(fs::path dir, int number, int token_bytes);
  /// Removes what was not finished.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void append(const ShardPiece& piece);
  const StoreCounts& counts() const;
  int64_t tokens() const;
  /// Makes all files durable under their names; nothing for a shard without documents.
  /// The directory is not synced.
  std::optional<StoreShard> finish();

  /// Removes temporary files from a directory: those of processes of this host that are
  /// gone, or all.
  static void remove_leavings(const fs::path& dir, bool all);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What stands behind the names of unfinished files: no other process has it, on no other
/// host.
std::string temporary_suffix();

/// A file written front to back, hashed on the way, under a temporary name until finish.
class HashedFile {
 public:
  /// `name` in `dir`; `temporary` is put behind it until the end.
  HashedFile(const fs::path& dir, std::string name, std::string_view temporary);
  HashedFile(HashedFile&&) noexcept;
  ~HashedFile();
  void write(std::span<const std::byte> bytes);
  /// Durable and under its own name afterwards; the blocks' hashes go into `blocks` under
  /// that name.
  StoreFile finish(Json& blocks);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::data
