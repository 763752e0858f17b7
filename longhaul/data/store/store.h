#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/format/dtype.h"

namespace longhaul::data {

// A token store is a directory:
//   store.json          what is below; written last
//   tokens_00000.bin    the tokens of all documents one after another, little-endian u16
//                       (vocabularies up to 65536) or u32; each shard but the last holds
//                       tokens_per_shard of them
//   documents.bin       per document, the place after its last token: u64 little-endian
//   block_hashes.json   xxh3-128 of each 1 MiB block of the files above
//   tokenizer/          the tokenizer's own files

inline constexpr int kStoreVersion = 1;

/// A file of a store with its size and the hash combined from its blocks.
struct StoreFile {
  std::string name;
  uint64_t bytes = 0;
  std::string hash;
};

/// A file that the store was made from.
struct StoreOrigin {
  std::string path;
  uint64_t bytes = 0;
  std::string hash;
  int64_t records = 0;
};

/// What store.json says.
struct StoreInfo {
  DType dtype = DType::U16;
  int64_t tokens = 0;
  int64_t documents = 0;
  uint64_t text_bytes = 0;   ///< UTF-8 bytes of the documents
  int64_t max_token_id = 0;  ///< the largest id in the store
  int64_t vocab_size = 0;    ///< of the tokenizer
  int64_t tokens_per_shard = 0;
  std::vector<StoreFile> shards;
  StoreFile document_ends;
  StoreFile block_hashes;
  std::vector<StoreFile> tokenizer_files;  ///< names inside tokenizer/
  std::string tokenizer_fingerprint;
  std::string special_tokens;  ///< the policy in words
  std::string selection;       ///< "all", or which side of a holdout
  std::vector<StoreOrigin> origins;
  std::map<std::string, int64_t> dropped;  ///< records by cause
  int64_t special_tokens_in_text = 0;
  std::string fingerprint;  ///< changes when tokens or documents do
};

/// True when the directory holds a store.json.
bool is_token_store(const fs::path& path);

/// Reads and checks store.json and the sizes of the files it names. InputError names the
/// field or the file, expected and found.
StoreInfo read_store_info(const fs::path& path);
/// The text of store.json.
std::string store_info_text(const StoreInfo& info);

/// Mean UTF-8 bytes per token of a store; 0 when `path` is not a token store.
double bytes_per_token(const fs::path& path);

}  // namespace longhaul::data
