#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/data/sources/token_source.h"
#include "longhaul/data/store/proved_file.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {

/// A mapped token store. Immutable; any thread may read. Tokens and documents are
/// numbered through the whole store. A read throws InputError when a block that it
/// touches has another hash than the store records. Each block is compared once while its
/// shard is open.
///
/// The shards of a store in pieces are objects. A read that touches a shard fetches the
/// shard and waits for it. The shard is held until pass() releases it. Such a read also
/// throws what objects::Pieces::hold() throws.
class TokenStore {
 public:
  /// Without `verify` no block is compared with its hash. With `pieces`, whose directory
  /// is `path`, reserves room for the two largest shards.
  explicit TokenStore(const fs::path& path, bool verify = true,
                      std::shared_ptr<const objects::Pieces> pieces = nullptr);
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
  bool in_pieces() const { return pieces_ != nullptr; }
  /// In a store in pieces, releases all shards except the shard of a token. A read that
  /// is running keeps its shards until it ends.
  void pass(int64_t token) const;
  /// Returns the first token of the shard that follows the shard of `token`; the number
  /// of all tokens if no shard follows.
  int64_t next_shard(int64_t token) const;
  /// In a store in pieces, begins to fetch the shard of a token.
  void fetch_ahead(int64_t token) const;
  /// Returns the record that a document was made from; nothing if the store does not say
  /// it. Throws InputError for a damaged file of records.
  std::optional<DocumentOrigin> origin_of(int64_t document) const;
  /// The name of a document: the file and the record that it was made from. In a store
  /// without records the file is the shard's file of tokens, and the record is the
  /// document's number in the shard, counted from 0.
  struct Name {
    std::string file;
    int64_t record = 0;
    bool operator==(const Name&) const = default;
  };
  Name name_of(int64_t document) const;
  /// Returns `tokens` tokens of a document from its token `offset` on, as the part of a
  /// sequence that begins with them; -1: all that follow.
  DocumentPart part_of(int64_t document, int64_t offset, int64_t tokens) const;
  /// Returns where a document begins, as a number of a token.
  int64_t document_begin(int64_t document) const {
    return document == 0 ? 0 : document_end(document - 1);
  }
  /// Returns the documents of a name, ascending. The number in a shard is understood in
  /// every store. Looks at the records of all documents.
  std::vector<int64_t> documents_named(const Name& name) const;
  /// Returns the UTF-8 bytes of a document's text; 0 for a document that came as token
  /// ids.
  uint64_t text_bytes(int64_t document) const;

 private:
  /// The open files of a shard.
  struct Files {
    std::shared_ptr<const fs::path> held;  ///< the directory of a piece
    ProvedFile token_file;
    ProvedFile ends;
    ProvedFile targets;  // empty: all are targets
    ProvedFile texts;    // empty: ready ids
    ProvedFile records;  // empty: the store has none
  };
  struct Shard {
    int64_t first_token = 0;
    int64_t tokens = 0;
    int64_t first_document = 0;
    int64_t documents = 0;
    std::shared_ptr<const Files> files;  ///< null where shards are pieces
  };
  std::shared_ptr<const Files> open(const StoreShard& from) const;
  /// Returns a shard's files, which stay open while the result lives.
  std::shared_ptr<const Files> files_of(const Shard& shard) const;
  const StoreShard& record_of(const Shard& shard) const {
    return info_.shards[static_cast<size_t>(&shard - shards_.data())];
  }
  /// Returns the shard that holds a token or a document; `first` is the member of a shard
  /// with the number of its first token or document.
  const Shard& shard_of(int64_t number, int64_t Shard::* first) const;
  /// Returns the end of a document, counted from the shard's first token and at most the
  /// shard's number of tokens.
  static int64_t end_in_shard(const Shard& shard, const Files& files, int64_t document);
  /// Calls copy(files, first token inside, part of `out`) for each shard that holds
  /// tokens of [begin, begin + out.size()).
  template <typename Value, typename Copy>
  void over_shards(int64_t begin, std::span<Value> out, const Copy& copy) const;

  fs::path path_;
  bool verify_;
  std::shared_ptr<const objects::Pieces> pieces_;
  std::shared_ptr<const void> room_;
  StoreInfo info_;
  std::vector<Shard> shards_;
  mutable std::mutex mutex_;
  /// The open shards of a store in pieces, which were fetched and not released yet.
  mutable std::map<const Shard*, std::shared_ptr<const Files>> here_;
};

}  // namespace longhaul::data
