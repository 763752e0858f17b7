#pragma once

#include <span>
#include <vector>

#include "longhaul/data/store/proved_file.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {

/// A mapped token store. Immutable; any thread may read. Tokens and documents are
/// numbered through the whole store. A read throws InputError when a block that it
/// touches has another hash than the store records. Each block is compared once.
class TokenStore {
 public:
  /// Without `verify` no block is compared with its hash.
  explicit TokenStore(const fs::path& path, bool verify = true);
  const StoreInfo& info() const { return info_; }
  const fs::path& path() const { return path_; }
  /// Copies tokens [begin, begin + out.size()) of the whole store. Throws InputError when
  /// a token is above the largest id that store.json records, since the file is then
  /// damaged.
  void read(int64_t begin, std::span<int32_t> out) const;
  /// Returns true when every token is a target.
  bool all_targets() const { return info_.counts.not_targets == 0; }
  /// Fills `out` for tokens [begin, begin + out.size()): 1 where the token is a target,
  /// else 0.
  void read_targets(int64_t begin, std::span<uint8_t> out) const;
  /// Returns the number of the token after the last token of a document.
  int64_t document_end(int64_t document) const;
  /// Returns the number of the document that holds a token.
  int64_t document_of(int64_t token) const;
  /// Returns the UTF-8 bytes of a document's text; 0 for a document of ready ids.
  uint64_t text_bytes(int64_t document) const;

 private:
  struct Shard {
    int64_t first_token = 0;
    int64_t tokens = 0;
    int64_t first_document = 0;
    int64_t documents = 0;
    ProvedFile token_file;
    ProvedFile ends;
    ProvedFile targets;  // empty: all are targets
    ProvedFile texts;    // empty: ready ids
  };
  /// Returns the shard that holds a token or a document; `first` is the member of a shard
  /// with the number of its first token or document.
  const Shard& shard_of(int64_t number, int64_t Shard::* first) const;
  /// Returns the end of a document, counted from the shard's first token and at most the
  /// shard's number of tokens.
  static int64_t end_in_shard(const Shard& shard, int64_t document);
  /// Calls copy(shard, first token inside, part of `out`) for each shard that holds
  /// tokens of [begin, begin + out.size()).
  template <typename Value, typename Copy>
  void over_shards(int64_t begin, std::span<Value> out, const Copy& copy) const;

  fs::path path_;
  StoreInfo info_;
  std::vector<Shard> shards_;
};

}  // namespace longhaul::data
