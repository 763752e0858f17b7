#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/data/bert/example_maker.h"

namespace longhaul::data {

/// The file that is written last into a directory of examples and marks the directory as
/// complete.
inline constexpr const char* kBertRecordName = "bert.json";

/// A shard in the list of a BertRecord.
struct BertShardInfo {
  std::string name;
  int64_t rows = 0;
  uint64_t bytes = 0;
  std::string hash;  ///< combine_hashes of the hashes of the file's 1 MiB blocks
  ExampleCounts counts;

  Json to_json() const;
  /// Reads the JSON of to_json(). `file` is named in messages.
  static BertShardInfo from_json(const Json& json, const fs::path& file);
};

/// The content of bert.json.
struct BertRecord {
  static constexpr int64_t kVersion = 1;
  Json plan;  ///< options, inputs and tokenizer, which decide the bytes
  /// Counts of documents, sentences and omitted records, and the sources' hashes.
  Json reading;
  std::vector<BertShardInfo> shards;
  ExampleCounts counts;

  std::string text() const;
  /// Reads the record of a directory. Throws InputError that names what is absent or
  /// wrong.
  static BertRecord read(const fs::path& dir);
};

/// Throws InputError when a directory with a record lacks a listed shard, or has a shard
/// of another size. A directory without a record is not checked.
void check_bert_directory(const fs::path& dir);

/// Throws InputError when the file has another hash than `info`.
void check_hash(const fs::path& shard, const BertShardInfo& info);

/// Throws InputError when the record beside a shard lists the shard with another hash. A
/// shard that no record lists is not checked. Its only checksum is then the Adler-32 of
/// each deflated chunk.
void check_recorded_hash(const fs::path& shard);

}  // namespace longhaul::data
