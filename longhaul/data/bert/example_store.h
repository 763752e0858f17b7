#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/store/proved_file.h"

namespace longhaul::data {

// Packed examples have random access, unlike HDF5 shards. Packed examples are a
// directory:
//   examples.json   the content of ExampleStoreInfo; written last
//   rows.bin        the examples one after another, all in one form (ExampleForm)
//   hashes.json     xxh3-128 of each 1 MiB block of rows.bin

inline constexpr int kExampleStoreVersion = 1;
inline constexpr const char* kExampleStoreRecord = "examples.json";
inline constexpr const char* kExampleRows = "rows.bin";

/// Where the parts of a packed example lie. All numbers are little-endian:
///   u32 number of tokens without padding, u16 number of masked positions,
///   u8 next-sentence label, u8 0
///   seq_len tokens, then `predictions` masked ids, of token_bytes each
///   `predictions` masked positions, u16
///   a bit for the segment of each position, lowest bit first
struct ExampleForm {
  int64_t seq_len = 0;
  int64_t predictions = 0;
  int token_bytes = 2;  ///< 2 or 4

  uint64_t tokens() const { return 8; }
  uint64_t ids() const { return tokens() + bytes_of(seq_len, token_bytes); }
  uint64_t positions() const { return ids() + bytes_of(predictions, token_bytes); }
  uint64_t segments() const { return positions() + bytes_of(predictions, 2); }
  uint64_t bytes() const { return segments() + (bytes_of(seq_len, 1) + 7) / 8; }

 private:
  static uint64_t bytes_of(int64_t count, int each) {
    return static_cast<uint64_t>(count) * static_cast<uint64_t>(each);
  }
};

/// A shard that the examples were made from.
struct ExampleOrigin {
  std::string path;
  uint64_t bytes = 0;
  int64_t rows = 0;
};

struct ExampleStoreInfo {
  ExampleForm form;
  int64_t rows = 0;
  int64_t max_token_id = 0;  ///< the largest id among tokens and masked-out tokens
  StoreFile row_file;
  StoreFile hash_file;
  std::vector<ExampleOrigin> origins;
  /// Empty: no record beside the shards names a tokenizer.
  std::string tokenizer_fingerprint;

  /// Returns a hash that changes when an example changes. examples.json has the same
  /// hash.
  std::string fingerprint() const;
  /// Returns the text of examples.json.
  std::string text() const;
  /// Reads and checks examples.json and the sizes of both files. Throws InputError with
  /// file and field, expected and found value.
  static ExampleStoreInfo read(const fs::path& dir);
};

/// Returns true when the directory holds an examples.json.
bool is_example_store(const fs::path& path);

/// An example that ExampleStore::read writes to the caller's spans of seq_len values
/// each.
struct ExampleRow {
  std::span<int32_t> tokens;    ///< padding included
  std::span<int32_t> segments;  ///< 0 in the first text, 1 in the second
  std::span<int32_t> labels;    ///< the id of a masked-out token, else kIgnore
  int64_t length = 0;           ///< tokens without padding, at least 1
  int32_t next_sentence = 0;    ///< 0 when the texts belong together, else 1
};

/// Mapped packed examples. Immutable: any thread may read.
class ExampleStore {
 public:
  /// With `verify` each block is compared with its hash when it is first touched. Throws
  /// the InputErrors of ExampleStoreInfo::read.
  explicit ExampleStore(const fs::path& path, bool verify = true);

  const fs::path& path() const { return path_; }
  const ExampleStoreInfo& info() const { return info_; }
  /// Reads row `row`, 0 <= row < info().rows. Throws InputError with file and offset for
  /// a damaged row.
  void read(int64_t row, ExampleRow& to) const;

 private:
  [[noreturn]] void fail(int64_t row, uint64_t offset, const std::string& what) const;

  fs::path path_;
  ExampleStoreInfo info_;
  ProvedFile rows_;
};

}  // namespace longhaul::data
