#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/data/bert/example_maker.h"

namespace longhaul::data {

/// Written last into a directory of examples: with it they are whole.
inline constexpr const char* kBertRecordName = "bert.json";

/// A shard as the record lists it.
struct BertShardInfo {
  std::string name;
  int64_t rows = 0;
  uint64_t bytes = 0;
  std::string hash;  ///< combine_hashes of its 1 MiB blocks
  ExampleCounts counts;

  Json to_json() const;
  /// `file` stands in messages.
  static BertShardInfo from_json(const Json& json, const fs::path& file);
};

/// What `bert.json` says.
struct BertRecord {
  static constexpr int64_t kVersion = 1;
  Json plan;     ///< options, inputs and tokenizer: what decides the bytes
  Json reading;  ///< documents, sentences, what was left out, the sources' hashes
  std::vector<BertShardInfo> shards;
  ExampleCounts counts;

  std::string text() const;
  /// InputError names what is absent or wrong.
  static BertRecord read(const fs::path& dir);
};

/// InputError when a directory with a record lacks a shard that it lists, or has one of
/// another size. One without a record is not looked at.
void check_bert_directory(const fs::path& dir);

/// InputError when the file has another hash than `info`.
void check_hash(const fs::path& shard, const BertShardInfo& info);

/// InputError when the record beside a shard lists it with another hash. A shard without
/// a record, or that it does not list, is not looked at: the format has no checksum of
/// its own but that of each deflated chunk (Adler-32).
void check_recorded_hash(const fs::path& shard);

}  // namespace longhaul::data
