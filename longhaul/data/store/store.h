#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/objects/pieces.h"

namespace longhaul::data {

// A token store is a directory:
//   store.json             what StoreInfo holds; written last
//   tokens_00000.bin       the tokens of a shard's documents one after another,
//                          little-endian, of 2 bytes each (vocabularies up to 65,536
//                          ids), 3 (up to 16,777,216) or 4
//   documents_00000.bin    for each document the place after its last token, counted from
//                          the shard's first token: u64 little-endian
//   targets_00000.bin      one bit for each token, lowest bit first; 1: the token is a
//                          target. Only where a token of the shard is no target
//   texts_00000.bin        for each document the bytes of its text, u32 little-endian.
//                          Only where the shard was made from text
//   records_00000.bin      for each document the record that it was made from, as
//                          DocumentOrigin::packed(): u64 little-endian. Stores of older
//                          programs have no such files
//   hashes_00000.json      xxh3-128 of each 1 MiB block of the shard's files
//   self_test.json         texts and their ids (self_test.h)
//   bad_records.jsonl      the records that were left out as broken; only where there are
//                          such records
//   tokenizer/             the tokenizer's own files
// One part of the input becomes one shard. Shards differ in size, and their numbers may
// have gaps: a part without documents leaves no shard.

inline constexpr int kStoreVersion = 3;

/// A file of a store with its size and a hash that is combined from the hashes of its
/// blocks.
struct StoreFile {
  std::string name;
  uint64_t bytes = 0;
  std::string hash;
};

/// Returns the name, the size and the hash of a file.
StoreFile hashed_file(const fs::path& path);

/// The record that a document was made from.
struct DocumentOrigin {
  int64_t file = 0;  ///< index into StoreInfo::origins
  /// The line in JSON lines and CSV, counted from 1; the row in Parquet and Arrow,
  /// counted from 0; 0 for a file of text.
  int64_t record = 0;

  /// Returns both numbers as one: 28 bits for the file, 36 bits for the record. Returns
  /// nothing if they do not fit.
  std::optional<uint64_t> packed() const;
  static DocumentOrigin unpacked(uint64_t packed);
};

struct StoreShard {
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t not_targets = 0;  ///< tokens that are no targets
  StoreFile token_file;
  StoreFile document_file;
  std::optional<StoreFile> target_file;
  std::optional<StoreFile> text_file;
  /// The lines in it are counted from the begin of the range that the shard was made
  /// from.
  std::optional<StoreFile> record_file;
  /// By file, how many lines stand before that range; without files whose range begins
  /// with them.
  std::map<int64_t, int64_t> lines_before;
  StoreFile hash_file;
  /// Returns the shard's files that exist; the file of hashes comes last.
  std::vector<StoreFile> files() const;
};

/// A file that the store was made from.
struct StoreOrigin {
  std::string path;
  uint64_t bytes = 0;
  /// Hash of the file; for a file that was read in ranges, combined from the ranges'
  /// hashes.
  std::string hash;
  int64_t records = 0;
};

/// Counts documents by their number of tokens.
struct LengthHistogram {
  /// Element k counts the documents of 2^k to 2^(k+1) - 1 tokens.
  std::array<int64_t, 40> counts{};
  int64_t shortest = 0;  ///< 0: no documents
  int64_t longest = 0;

  void add(int64_t tokens);
  void add(const LengthHistogram& other);
};

/// Counts of the documents and tokens that one part of the input, or all parts, put into
/// a store.
struct StoreCounts {
  uint64_t text_bytes = 0;   ///< UTF-8 bytes of the documents
  int64_t max_token_id = 0;  ///< the largest id
  /// BOS and EOS tokens that were in the texts themselves.
  int64_t special_in_text = 0;
  int64_t ready_documents = 0;  ///< documents that came as ids
  int64_t not_targets = 0;      ///< tokens that are no targets
  LengthHistogram lengths;

  void add(const StoreCounts& other);
};

/// How often the build of a store of chats has seen something, and where first.
struct StoreFinding {
  int64_t count = 0;
  std::string first;  ///< such as "chats.jsonl:17"
};

/// What store.json says of a store of chats or pairs.
struct StoreChat {
  std::string template_hash;  ///< of the templates and the special tokens
  std::string targets;        ///< "assistant", "last" or "all"
  std::string day;            ///< that templates print; empty: they print none
  /// By the names of chat::finding_name; without those that were not seen.
  std::map<std::string, StoreFinding> findings;
};

/// The content of store.json.
struct StoreInfo {
  int token_bytes = 2;  ///< bytes of a stored token
  int64_t tokens = 0;
  int64_t documents = 0;
  StoreCounts counts;
  int64_t vocab_size = 0;  ///< the tokenizer's vocabulary
  std::vector<StoreShard> shards;
  /// The tokenizer's files, by their names in tokenizer/. The list is empty if the store
  /// was built from ids instead of text.
  std::vector<StoreFile> tokenizer_files;
  std::string tokenizer_fingerprint;  ///< empty: ready ids
  std::optional<StoreFile> self_test;
  std::optional<StoreFile> bad_records;
  std::string special_tokens;  ///< the policy in words
  /// What a document is. In a store of "pairs" document 2i is the chosen and 2i + 1 the
  /// rejected side of pair i.
  std::string kind = "text";      ///< "text", "chats" or "pairs"
  std::optional<StoreChat> chat;  ///< of chats and pairs
  /// Which documents the store has: "all documents", or one side of a holdout.
  std::string selection;
  std::vector<StoreOrigin> origins;
  std::map<std::string, int64_t> dropped;  ///< records left out, by cause
  /// The number of positions with attention_mask 0 behind token ids, which were left out.
  int64_t padding_removed = 0;
  std::string build;        ///< hash of inputs, tokenizer and options
  std::string fingerprint;  ///< changes when tokens or documents change

  /// Returns the files that are neither of a shard nor store.json, named by their paths
  /// in the store.
  std::vector<StoreFile> side_files() const;
};

/// The name of the file that StoreInfo is in.
inline constexpr const char* kStoreRecord = "store.json";

/// Returns true when the directory holds a store.json.
bool is_token_store(const fs::path& path);
/// Returns whether a file of a store belongs to a shard, so that it is neither store.json
/// nor a side file.
bool is_shard_file(std::string_view name);

/// Reads and checks store.json and the sizes of the listed files. Throws InputError with
/// the field or the file, the expected and the found value. With `pieces` the files of
/// the shards are objects of `pieces`, and `path` holds the other files.
StoreInfo read_store_info(const fs::path& path, const objects::Pieces* pieces = nullptr);
/// Returns the text of store.json.
std::string store_info_text(const StoreInfo& info);
/// Computes tokens, documents, counts.not_targets and the fingerprint of a store from its
/// shards.
void sum_up_shards(StoreInfo& info);

// The records of a build hold these parts of store.json too. `file` is named in messages.
OrderedJson to_json(const StoreFile& file);
OrderedJson to_json(const StoreShard& shard);
OrderedJson to_json(const StoreCounts& counts);
StoreShard shard_from_json(const Json& json, const fs::path& file);
StoreCounts counts_from_json(const Json& json, const fs::path& file);

/// Returns the mean UTF-8 bytes per token of a store; 0 when `path` is no token store or
/// a store that was built from token ids.
double bytes_per_token(const fs::path& path);

}  // namespace longhaul::data
